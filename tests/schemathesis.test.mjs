// A fuzzer that believes openapi.json calls every operation, with input that keeps the document and with input that
// breaks it: whatever it sends, the gateway never fails, and every answer is one that the document tells of.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fetch, Response } from "miniflare";
import { stringify } from "smol-toml";
import { inRoot } from "../scripts/lib/paths.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { run } from "./harness/shell.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const python = process.env.SLUICE_PYTHON ?? inRoot(".venv", "bin", "python3");
const seed = 20_260_622;
/** Cases that are drawn for each operation, beside those that the document's every rule calls for. */
const drawn = 15;
/** Seconds after which the fuzzer has to be done; alone on a machine it takes a third of that. */
const patience = 150;
const checks = ["not_a_server_error", "response_schema_conformance", "content_type_conformance", "status_code_conformance", "response_headers_conformance"];

let gateway, upstream, scratch;
before(async () => {
  scratch = mkdtempSync(join(tmpdir(), "sluice-fuzz-"));
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, outbound: nearby });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
  rmSync(scratch, { recursive: true, force: true });
});

/** The fuzzer writes addresses of its own into models, routes and webhooks; none but the test's own provider answers. */
function nearby(request) {
  return request.url.startsWith(`${upstream.url}/`) ? fetch(request) : new Response("out of reach", { status: 502 });
}

const ids = (stem, count = 12) => Array.from({ length: count }, (_, i) => `${stem}-${i}`);

/** Things of every kind, so that more comes of a call than a 404; the caller and their plan are not among them. */
async function things(caller, key) {
  const known = { user: ids("user"), plan: ids("plan"), key: ids("key", 24), route: ids("route"), model: ids("model"), notification: ids("notification"), version: ["*"], job: [] };
  for (const plan_id of known.plan) await gateway.createPlan({ plan_id, daily_limit: 5, monthly_token_limit: 1000 });
  for (const [i, user_id] of known.user.entries()) {
    await gateway.createUser({ user_id, plan_id: i % 2 ? "free" : "pro" });
    for (const key_id of known.key.slice(2 * i, 2 * i + 2)) await gateway.createKey(user_id, { key_id });
  }
  for (const route_id of known.route) await made(201, gateway.admin("/admin/routes", { json: { route_id, path_prefix: `/${route_id}`, upstream_url: upstream.url } }));
  for (const model of known.model) await made(201, gateway.admin(`/admin/models/${model}`, { method: "PUT", json: { upstream: "mock" } }));
  for (const id of known.notification) {
    await gateway.d1.prepare("INSERT INTO notifications (notification_id, user_id, type, data, created_at_ms) VALUES (?, ?, 'job.completed', '{}', 1)").bind(id, caller).run();
  }
  for (let n = 0; n < 12; n++) known.job.push((await made(202, gateway.call("/api/ai/query", { key, json: { prompt: "hi" }, headers: { prefer: "respond-async" } }))).id);
  // Half of them wait for tomorrow, the others have failed.
  const tomorrow = Date.now() + 86_400_000;
  for (const [i, id] of known.job.entries()) {
    const ended = i % 2 ? "status = 'failed', closed = 1" : "status = 'queued', finished_at_ms = NULL, closed = 0";
    await gateway.d1.prepare(`UPDATE jobs SET ${ended}, not_before_ms = ?, expires_at_ms = ? WHERE job_id = ?`).bind(tomorrow, 2 * tomorrow, id).run();
  }
  return known;
}

async function made(status, answer) {
  const { status: got, text, body } = await answer;
  assert.equal(got, status, text);
  return body;
}

/** Who calls what, and where ids come from; every second one is of the fuzzer's own making. */
function settings(known, { key, service }) {
  const from = (dictionary) => ({ dictionary, probability: 0.5 });
  const bearer = (token) => ({ Authorization: `Bearer ${token}` });
  return stringify({
    cache: { enabled: false },
    dictionaries: Object.fromEntries(Object.entries(known).map(([name, values]) => [name, { values }])),
    parameters: { "path.user_id": from("user"), "path.plan_id": from("plan"), "path.key_id": from("key"), "path.route_id": from("route"), "header.If-Match": from("version") },
    operations: [
      { "include-tag": "operator", headers: bearer(gateway.adminToken), parameters: { "path.model": from("model") } },
      { "include-tag": ["llm", "desk"], headers: bearer(key) },
      { "include-tag": "decisions", headers: bearer(service), parameters: { "body.user_id": from("user") } },
      { "include-operation-id": ["createUser", "changeUser"], parameters: { "body.plan_id": from("plan") } },
      { "include-path-regex": "/jobs/", parameters: { "path.id": from("job") } },
      { "include-path-regex": "/notifications/", parameters: { "path.id": from("notification") } },
    ],
  });
}

/** Lets the fuzzer at the gateway; gives back how it ended, what it said and its own report. */
async function fuzz(document, config, ...rest) {
  const [toml, location, report] = ["fuzz.toml", "openapi.json", "report.json"].map((name) => join(scratch, name));
  writeFileSync(toml, config);
  // From a file: an operation that it has read the document from, it does not call.
  writeFileSync(location, JSON.stringify(document));
  const args = ["-m", "schemathesis.cli", "--config-file", toml, "run", location, "--url", gateway.url, "--phases", "examples,coverage,fuzzing", "--checks", checks.join(",")];
  // One worker: the generators of two get into each other's way now and then.
  args.push("--seed", String(seed), "--max-examples", String(drawn), "--workers", "1", "--continue-on-failure", "--no-color", "--generation-database", "none");
  args.push("--report-json-path", report, ...rest);
  const { code, output } = await run(python, args, process.env, undefined, patience * 1000);
  assert.notEqual(code, null, `not done after ${patience} s: ${output}`);
  return { code, output, report: JSON.parse(readFileSync(report, "utf8")) };
}

test("no operation fails or answers what the document does not tell of", { timeout: 290_000 }, async (t) => {
  // Nothing limits the caller, so that work is done rather than refused.
  const caller = await gateway.createUser({ user_id: "the-caller", plan_id: await gateway.createPlan({ plan_id: "roomy", over_quota: { strategy: "queue" } }) });
  const keys = { key: await gateway.createKey(caller), service: await gateway.createKey(caller, { scope: "service" }) };
  const known = await things(caller, keys.key);
  const { body: document } = await gateway.call("/openapi.json");
  const documented = Object.entries(document.paths).flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`));

  const reports = [];
  // Apart from the calls: where a model's calls go is then of the fuzzer's making, and there they truly fail.
  for (const which of ["--exclude-operation-id", "--include-operation-id"]) {
    const { code, output, report } = await fuzz(document, settings(known, keys), which, "putModelRow");
    t.diagnostic(`${report.test_cases.generated} cases in ${Math.round(report.running_time)} s`);
    assert.equal(code, 0, output);
    assert.deepEqual([report.failures, report.errors, report.complete], [[], [], true], output);
    reports.push(report);
  }
  const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
  assert.equal(sum(reports.map((report) => report.operations.tested)), documented.length);
  // Done, or refused for what there is already: past the door and the reading of the input.
  const done = (operation) => reports.flatMap((report) => Object.values(report.valid_rates[operation] ?? {})).map((phase) => phase.accepted + phase.conflicts);
  assert.deepEqual(documented.filter((operation) => sum(done(operation)) === 0), [], "each operation did its work");
  assert.ok(sum(reports.map((report) => report.test_cases.generated)) > 20 * documented.length);
  assert.doesNotMatch(gateway.logs(), /panicked|Uncaught|RuntimeError/);
});

test("a gateway that answers otherwise than its document is found out", { timeout: 100_000 }, async () => {
  const { body: document } = await gateway.call("/openapi.json");
  document.components.schemas.Health.properties.status = { const: "fine" };
  const { code, output, report } = await fuzz(document, stringify({ cache: { enabled: false } }), "--include-operation-id", "healthz");
  assert.equal(code, 1, output);
  assert.equal(report.failures.length, 1, output);
});
