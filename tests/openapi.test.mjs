// openapi.json: sound by a linter's rules, complete, and true of every answer that the gateway gives.
import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { Caller } from "./harness/callers.mjs";
import { Document, documentOf } from "./harness/document.mjs";
import { eventually } from "./harness/eventually.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const model = "m-small";
const messages = [{ role: "user", content: "hi" }];
/** What each LLM operation takes. */
const llm = {
  "/v1/chat/completions": { model, messages },
  "/v1/completions": { model, prompt: "hi" },
  "/v1/embeddings": { model, input: "hi" },
  "/v1/responses": { model, input: "hi" },
  "/v1/messages": { model, messages, max_tokens: 10 },
  "/v1/messages/count_tokens": { model, messages },
};
const later = { headers: { prefer: "respond-async" } };
const tooLarge = { method: "POST", body: " ".repeat((1 << 20) + 1) };

let gateway, upstream, document, serial = 0;
before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, vars: { UPSTREAM_TIMEOUT_MS: "1000" } });
  await gateway.keepToDocument();
  document = gateway.document;
  statuses(201, await admin("PUT", "/admin/models/unset", { upstream: "openai", secret_name: "NOT_SET" }));
});
afterEach(async () => {
  upstream.reset();
  await gateway.noFaults();
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const name = (stem) => `${stem}-${++serial}`;
const admin = (method, path, json, rest) => gateway.admin(path, { method, json, ...rest });

/** The answers have these statuses, in order; gives back the first one's body. `gateway.call` has held each against the document. */
function statuses(expected, ...answers) {
  assert.deepEqual(answers.map((answer) => answer.status), [expected].flat(), answers.map((answer) => answer.text).join("\n"));
  return answers[0].body;
}

/** A user on a plan of their own, both made at the operator's desk. */
async function caller(plan = {}) {
  const { plan_id } = statuses(201, await admin("POST", "/admin/plans", { plan_id: name("p"), name: "P", window: null, ...plan }));
  const { user_id } = statuses(201, await admin("POST", "/admin/users", { user_id: name("u"), plan_id }));
  const { key, key_id } = statuses(201, await admin("POST", `/admin/users/${user_id}/keys`, {}));
  return Object.assign(new Caller(gateway, user_id, plan_id, key), { key_id });
}

const get = (user, path) => gateway.call(path, { key: user.key });
const chat = (user, rest) => user.post("/v1/chat/completions", llm["/v1/chat/completions"], rest);

const lint = async (source) => lintFromString({ source, config: await createConfig({ extends: ["recommended"] }) });
const errors = (problems) => problems.filter((one) => one.severity === "error");

describe("the document", () => {
  test("keeps a linter's recommended rules, and its schemas are JSON Schemas", async () => {
    const { text } = await gateway.call("/openapi.json");
    const problems = await lint(text);
    assert.deepEqual(errors(problems).map((one) => `${one.ruleId}: ${one.message} ${one.location[0]?.pointer}`), []);
    // Where nothing can be refused there is no refusal to tell of.
    assert.deepEqual([...new Set(problems.map((one) => one.ruleId))], ["operation-4xx-response"]);
    assert.deepEqual(document.brokenSchemas(), []);
  });

  test("a linter that is given a broken document says so", async () => {
    const broken = structuredClone(document.json);
    broken.components.schemas.Plan.type = "plan";
    broken.paths["/admin/plans"].get.operationId = "getPlan";
    const problems = await lint(JSON.stringify(broken));
    assert.deepEqual(errors(problems).map((one) => one.ruleId).sort(), ["operation-operationId-unique", "struct"]);
    assert.equal(new Document(broken).brokenSchemas().length, 1);
  });

  test("has every operation of the operator's desk and no other", async () => {
    const { data } = statuses(200, await admin("GET", "/admin"));
    const described = document.operations.filter(({ path }) => path.startsWith("/admin"));
    assert.deepEqual(
      described.map(({ method, path }) => `${method} ${path}`).sort(),
      data.map(({ method, path }) => `${method} ${path.replace("*}", "}")}`).sort(),
    );
    assert.deepEqual((await admin("GET", "/admin/")).body.data, data);
  });

  test("has exactly the methods that the gateway takes on every other path", async () => {
    const user = await caller();
    for (const { path } of document.paths.filter(({ path }) => !path.startsWith("/admin"))) {
      const documented = document.operations.filter((one) => one.path === path);
      const open = documented.every(({ security }) => security.length === 0);
      const real = path.replace(/\{\w+\}/, "x");
      const key = path === "/metrics" ? gateway.adminToken : user.key;
      for (const method of ["PATCH", "PROPFIND"]) {
        const wrong = await gateway.call(real, { key, method });
        assert.equal(wrong.status, 405, `${method} ${path}: ${wrong.text}`);
        const allowed = [...documented.map((one) => one.method), ...(open ? ["HEAD"] : [])];
        assert.deepEqual(wrong.headers.get("allow").split(", ").sort(), allowed.sort(), path);
      }
      if (!open) assert.equal((await gateway.call(real, { method: "PATCH" })).status, 401, path);
      assert.equal((await gateway.call(real, { method: "OPTIONS" })).status, 204, path);
    }
  });

  test("an answer that it does not tell of is noticed", async () => {
    const other = await documentOf(gateway);
    const answer = await gateway.call("/healthz");
    other.check("GET", "/healthz", answer);
    const headers = new Headers(answer.headers);
    headers.delete("request-id");
    const limited = new Headers({ ...Object.fromEntries(answer.headers), "retry-after": "5" });
    for (const [wrong, says] of [
      [{ ...answer, status: 418 }, /418 is not in the document/],
      [{ ...answer, body: { status: "fine" } }, /must be equal to constant/],
      [{ ...answer, headers }, /request-id is missing/],
      [{ ...answer, headers: limited }, /retry-after is not in the document/],
      [{ ...answer, headers: new Headers({ ...Object.fromEntries(answer.headers), "content-type": "text/html" }) }, /content type text\/html/],
      [{ ...answer, headers: new Headers({ ...Object.fromEntries(answer.headers), "x-request-id": "7" }) }, /header x-request-id/],
    ]) assert.throws(() => other.check("GET", "/healthz", wrong), says);
    assert.deepEqual(other.driven, new Map([["healthz", new Set([200])]]));
  });
});

describe("the models", () => {
  for (const [path, json] of Object.entries(llm)) {
    const counts = path.endsWith("count_tokens");
    const streams = !counts && path !== "/v1/embeddings";

    test(`${path}: answers`, async () => {
      const user = await caller({ daily_limit: 100, monthly_token_limit: 1_000_000 });
      statuses([200, 200], await user.post(path, json), await user.post(path, { ...json, ...(streams && { stream: true }) }));
      if (!counts) statuses(202, await user.post(path, json, later));
    });

    test(`${path}: refusals`, async () => {
      const user = await caller({ daily_limit: 100, rate: { capacity: 9, refill_per_minute: 1 }, allowed_models: ["m-*"] });
      statuses([400, 413, 401], await user.post(path, {}), await gateway.call(path, { key: user.key, ...tooLarge }), await gateway.call(path, { json }));
      if (!counts) statuses(403, await user.post(path, { ...json, model: "other" }));
      statuses([401, 401], await gateway.call(path, { key: "slc_live_wrong", json }), await gateway.call(path, { key: gateway.adminToken, json }));
      const spent = await caller({ rate: { capacity: 1, refill_per_minute: 1 } });
      statuses([200, 429], await spent.post(path, json), await spent.post(path, json));
    });

    test(`${path}: failures`, async () => {
      const user = await caller({ on_outage: "closed" });
      statuses(500, await user.post(path, { ...json, model: "unset" }));
      if (!counts) {
        upstream.next({ status: 500 }, { status: 429 }, { status: 404 }, { status: 400 }, { hang: true });
        statuses([502, path === "/v1/messages" ? 529 : 503, 404, 400, 504], ...(await inTurn(5, () => user.post(path, json))));
      }
      // A user who has just called often would be decided by a lease.
      const seldom = await caller({ on_outage: "closed" });
      await gateway.fault({ binding: "ACCOUNTS", mode: "error" });
      statuses(path.startsWith("/v1/messages") ? 529 : 503, await seldom.post(path, json));
    });
  }

  test("the list, one of them, and the simple door", async () => {
    const user = await caller({ allowed_models: ["m-small", "@cf/meta/m"], daily_limit: 1, monthly_token_limit: 1000, over_quota: { strategy: "queue" } });
    statuses([200, 200, 200, 404], ...(await Promise.all(["", "/m-small", "/%40cf%2Fmeta%2Fm", "/nope"].map((rest) => get(user, `/v1/models${rest}`)))));
    statuses([401, 401], await gateway.call("/v1/models"), await gateway.call("/v1/models/m-small"));
    const query = (json, rest) => user.post("/api/ai/query", json, rest);
    statuses([200, 400, 403], await query({ prompt: "hi", model }), await query({}), await query({ prompt: "hi", model: "other" }));
    await user.settled();
    statuses([202, 401], await query({ prompt: "hi", model }), await gateway.call("/api/ai/query", { json: { prompt: "hi" } }));
  });
});

test("decisions", async () => {
  const user = await caller({ daily_limit: 1, monthly_token_limit: 1000 });
  const { key } = statuses(201, await admin("POST", `/admin/users/${(await caller()).user_id}/keys`, { scope: "service" }));
  const ask = (question, json, rest) => gateway.call(`/api/limits/${question}`, { key, json, ...rest });
  const consumed = await ask("consume", { user_id: user.user_id, tokens: 10 });
  statuses([200, 200], consumed, await ask("consume", { user_id: user.user_id }));
  const { reservation_id } = consumed.body;
  statuses([200, 200, 200, 200], await ask("settle", { reservation_id, tokens: 5 }), await ask("release", { reservation_id }), await ask("settle", { reservation_id: "x" }), await ask("release", { reservation_id: "x" }));
  statuses(404, await ask("consume", { user_id: "nobody-at-all" }));
  for (const question of ["consume", "settle", "release"]) {
    statuses([400, 401, 403, 413], await ask(question, {}), await ask(question, {}, { key: undefined }), await ask(question, {}, { key: user.key }), await ask(question, undefined, tooLarge));
  }
  await gateway.fault({ binding: "ACCOUNTS", mode: "error" });
  statuses(503, await ask("consume", { user_id: user.user_id }));
});

test("a caller's own desk", async () => {
  const user = await caller({ daily_limit: 2, notify_at: [0.5], over_quota: { strategy: "queue" } });
  statuses([200, 200], await chat(user), await chat(user));
  const job = statuses(202, await chat(user, later));
  const news = await eventually(async () => {
    const { data } = statuses(200, await get(user, "/api/notifications"));
    assert.ok(data.length > 0);
    return data[0];
  });
  const lists = ["/api/quota", "/api/usage", "/api/keys", "/api/jobs", "/api/notifications"];
  for (const path of lists) {
    const asked = path === "/api/usage" ? "from=2020-02-30" : "limit=0";
    statuses([200, path === "/api/quota" ? 200 : 400, 401], await get(user, path), await get(user, `${path}?${asked}`), await gateway.call(path));
  }
  const mine = { key: user.key, method: "POST" };
  const read = `/api/notifications/${news.id}/read`;
  statuses([200, 200, 404, 401], await gateway.call(read, mine), await gateway.call(read, mine), await gateway.call("/api/notifications/x/read", mine), await gateway.call(read, { method: "POST" }));
  const taken = { key: user.key, method: "DELETE" };
  const path = `/api/jobs/${job.id}`;
  statuses([200, 404, 401], await get(user, path), await get(user, "/api/jobs/x"), await gateway.call(path));
  statuses([200, 200, 200, 404, 401], await gateway.call(path, taken), await gateway.call(path, taken), await get(user, path), await gateway.call("/api/jobs/x", taken), await gateway.call(path, { method: "DELETE" }));

  const other = await caller();
  const done = `/api/jobs/${statuses(202, await chat(other, later)).id}`;
  await eventually(async () => assert.equal(statuses(200, await get(other, done)).status, "succeeded"));
  statuses(409, await gateway.call(done, { key: other.key, method: "DELETE" }));
});

test("plans, users, keys and quotas", async () => {
  const user = await caller({ daily_limit: 10, endpoints: [{ name: "export", max_requests: 5, per_seconds: 60 }] });
  await gateway.d1.prepare("INSERT INTO plans (plan_id, name, reset, updated_at) VALUES ('broken', 'Broken', '{\"timezone\":\"Mars/Olympus\"}', '2026-01-01T00:00:00Z')").run();
  for (const [list, one, thing] of [["/admin/plans", `/admin/plans/${user.plan_id}`, { plan_id: user.plan_id, name: "again" }], ["/admin/users", `/admin/users/${user.user_id}`, { user_id: user.user_id }]]) {
    statuses([200, 400], await admin("GET", list), await admin("GET", `${list}?cursor=%21`));
    statuses([409, 400, 413], await admin("POST", list, thing), await admin("POST", list, {}), await gateway.admin(list, tooLarge));
    statuses([200, 200, 404, 400], await admin("GET", one), await admin("PATCH", one, {}), await admin("GET", `${list}/nope`), await admin("PATCH", one, { typo: 1 }));
    statuses(412, await admin("PATCH", one, {}, { headers: { "if-match": '"v0"' } }));
  }
  statuses(200, await admin("PATCH", `/admin/users/${user.user_id}`, { overrides: { window: "default", rate: null, daily_limit: 20 } }));
  statuses(200, await admin("PATCH", `/admin/plans/${user.plan_id}`, { window: "default" }));
  const at = `/admin/users/${user.user_id}`;
  statuses([200, 404, 200, 404, 400], await admin("GET", `${at}/quota`), await admin("GET", "/admin/users/nope/quota"), await admin("GET", `${at}/usage`), await admin("GET", "/admin/users/nope/usage"), await admin("GET", `${at}/usage?from=x`));
  statuses([200, 400, 404], await admin("POST", `${at}/reset`, { policies: ["daily"] }), await admin("POST", `${at}/reset`, { policies: ["x"] }), await admin("POST", "/admin/users/nope/reset", {}));
  statuses([200, 400, 404], await admin("POST", `${at}/grant`, { policy: "daily", amount: 5, expires_at: "2099-01-01T00:00:00Z" }), await admin("POST", `${at}/grant`, {}), await admin("POST", "/admin/users/nope/grant", { policy: "daily", amount: 1 }));

  statuses([200, 404, 400], await admin("GET", `${at}/keys`), await admin("GET", "/admin/users/nope/keys"), await admin("POST", `${at}/keys`, { scope: "admin" }));
  const made = statuses(201, await admin("POST", `${at}/keys`, { name: "k", expires_at: "2099-01-01T00:00:00Z" }));
  const rotated = await admin("POST", `/admin/keys/${made.key_id}/rotate`, { overlap_seconds: 60 });
  statuses([201, 400, 404], rotated, await admin("POST", `/admin/keys/${rotated.body.key_id}/rotate`, { overlap_seconds: -1 }), await admin("POST", "/admin/keys/nope/rotate"));
  statuses([204, 204, 404, 409], await admin("DELETE", `/admin/keys/${rotated.body.key_id}`), await admin("DELETE", `/admin/keys/${rotated.body.key_id}`), await admin("DELETE", "/admin/keys/nope"), await admin("POST", `/admin/keys/${rotated.body.key_id}/rotate`));
  statuses([409, 204, 404], await admin("DELETE", `/admin/plans/${user.plan_id}`), await admin("DELETE", at), await admin("DELETE", at));
  statuses([204, 404], await admin("DELETE", `/admin/plans/${user.plan_id}`), await admin("DELETE", `/admin/plans/${user.plan_id}`));
});

test("models and protected routes", async () => {
  const path = `/admin/models/${name("m")}`;
  const body = { upstream: "openai", base_url: "https://llm.example.com/v1", secret_name: "OTHER_KEY", aliases: [name("alias")] };
  statuses([201, 200, 200, 200], await admin("PUT", path, body), await admin("PUT", path, { upstream: "mock" }), await admin("GET", path), await admin("GET", "/admin/models"));
  statuses([400, 412, 404, 400], await admin("PUT", path, {}), await admin("PUT", path, body, { headers: { "if-match": '"v9"' } }), await admin("GET", "/admin/models/nope"), await admin("GET", "/admin/models?limit=x"));
  statuses([204, 404], await admin("DELETE", path), await admin("DELETE", path));

  const route = { path_prefix: `/${name("reports")}`, upstream_url: upstream.url };
  const { route_id } = statuses(201, await admin("POST", "/admin/routes", route));
  const at = `/admin/routes/${route_id}`;
  statuses([409, 400, 200, 400], await admin("POST", "/admin/routes", route), await admin("POST", "/admin/routes", {}), await admin("GET", "/admin/routes"), await admin("GET", "/admin/routes?limit=x"));
  statuses([200, 200, 400, 404], await admin("GET", at), await admin("PATCH", at, { methods: ["GET"], cost: 2 }), await admin("PATCH", at, { cost: 0 }), await admin("GET", "/admin/routes/nope"));
  statuses([204, 404], await admin("DELETE", at), await admin("DELETE", at));
});

test("jobs, alerts, audit, statistics and reconciliation", async () => {
  const user = await caller({ daily_limit: 1, over_quota: { strategy: "queue" } });
  statuses(200, await chat(user));
  const job = statuses(202, await chat(user, later));
  const at = `/admin/jobs/${job.id}`;
  statuses([200, 400, 200], await admin("GET", "/admin/jobs"), await admin("GET", "/admin/jobs?status=x"), await admin("GET", `/admin/jobs?status=queued&user_id=${user.user_id}`));
  statuses([409, 404, 404], await admin("POST", `${at}/retry`), await admin("POST", "/admin/jobs/nope/retry"), await admin("POST", "/admin/jobs/nope/cancel"));
  const taken = statuses(200, await admin("POST", `${at}/cancel`));
  assert.equal(taken.status, "cancelled");
  await gateway.d1.prepare("UPDATE jobs SET status = 'failed', error = '{\"message\":\"x\"}' WHERE job_id = ?").bind(job.id).run();
  statuses([409, 200], await admin("POST", `${at}/cancel`), await admin("POST", `${at}/retry`));

  await gateway.d1.prepare("INSERT INTO alerts (id, kind, subject, detail, opened_at_ms) VALUES ('a1', 'drift', 'x', '{}', 1)").run();
  statuses([200, 200, 400], await admin("GET", "/admin/alerts"), await admin("GET", "/admin/alerts?status=open"), await admin("GET", "/admin/alerts?status=x"));
  statuses([200, 400], await admin("GET", "/admin/audit?limit=200"), await admin("GET", "/admin/audit?limit=x"));
  statuses([200, 400], await admin("GET", "/admin/stats"), await admin("GET", "/admin/stats?from=x"));
  statuses([200, 200, 400, 413], await admin("POST", "/admin/reconcile", { user_id: user.user_id }), await admin("POST", "/admin/reconcile", {}), await admin("POST", "/admin/reconcile", { typo: 1 }), await gateway.admin("/admin/reconcile", tooLarge));
  await gateway.fault({ binding: "DB", mode: "error" });
  statuses([503, 503, 503], await admin("GET", "/admin/stats"), await admin("GET", "/admin/audit"), await gateway.call("/metrics", { key: gateway.adminToken }));
});

test("the gateway itself", async () => {
  statuses([200, 200, 200], await gateway.call("/healthz"), await gateway.call("/readyz"), await gateway.call("/openapi.json"));
  statuses([200, 401], await gateway.call("/metrics", { key: gateway.adminToken }), await gateway.call("/metrics"));
  for (const path of ["/healthz", "/readyz", "/openapi.json"]) {
    const head = await gateway.call(path, { method: "HEAD" });
    assert.deepEqual([head.status, head.text], [200, ""], path);
  }
  const bare = await startGateway({ secrets: { ADMIN_TOKEN: null } });
  try {
    bare.document = document;
    statuses(503, await bare.call("/readyz"));
  } finally {
    await bare.stop();
  }
});

test("strangers and callers at the operator's desk", async () => {
  const user = await caller();
  for (const { method, path } of document.operations.filter(({ path }) => path.startsWith("/admin") || path === "/metrics")) {
    const real = path.replace(/\{\w+\}/, "x");
    statuses([401, 403], await gateway.call(real, { method }), await gateway.call(real, { method, key: user.key }));
  }
});

test("every operation was driven: each success it tells of, and a refusal where it tells of one", () => {
  const missing = document.operations.flatMap(({ operationId, responses }) => {
    const seen = document.driven.get(operationId) ?? new Set();
    const told = Object.keys(responses).map(Number);
    const successes = told.filter((status) => status < 300 && !seen.has(status));
    const refused = told.every((status) => status < 400) || [...seen].some((status) => status >= 400);
    return [...successes.map((status) => `${operationId} ${status}`), ...(refused ? [] : [`${operationId}: no refusal`])];
  });
  assert.deepEqual(missing, []);
});

/** Calls one after the other. */
async function inTurn(times, call) {
  const answers = [];
  for (let n = 0; n < times; n++) answers.push(await call());
  return answers;
}
