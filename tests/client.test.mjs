// The TypeScript client: its own tests, and its examples against the built Worker, also as their page has them.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { eventually } from "./harness/eventually.mjs";
import { blocks } from "./harness/page.mjs";
import { startShell } from "./harness/shell.mjs";
import { inRoot } from "../scripts/lib/paths.mjs";
import { signal } from "../scripts/lib/processes.mjs";
import { run } from "../scripts/lib/run.mjs";
import { demoUsers } from "../scripts/seed.mjs";

const tsc = inRoot("node_modules", ".bin", "tsc");
let gateway, service;

before(async () => {
  await run(tsc, ["-p", inRoot("clients", "typescript")], { show: false });
  gateway = await startGateway();
  service = await gateway.createKey(await gateway.createUser({ user_id: "the-service" }), { scope: "service" });
});
after(() => gateway.stop());

test("the package's own tests pass, and its types fit Hono's and Express's", async () => {
  await run(tsc, ["-p", inRoot("clients", "typescript", "test")], { show: false });
  const folder = inRoot("clients", "typescript", "test");
  const files = readdirSync(folder).filter((name) => name.endsWith(".test.mjs")).map((name) => `${folder}/${name}`);
  const { NODE_TEST_CONTEXT, ...env } = process.env;
  const { output } = await run(process.execPath, ["--test", "--test-reporter=tap", ...files], { show: false, env });
  assert.match(output, /^# pass [1-9]\d*$/m);
  assert.match(output, /^# fail 0$/m);
});

/** A service in a process group of its own, once it listens: {url, stop}. */
async function startService(program, args, cwd, url = gateway.url) {
  const env = { ...process.env, SLUICE_URL: url, SLUICE_SERVICE_KEY: service, PORT: "0" };
  const child = spawn(program, args, { cwd, env, detached: true, stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.on("data", (bytes) => (said += bytes));
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const stop = () => {
    signal(-child.pid, "SIGTERM");
    return ended;
  };
  try {
    return { url: await eventually(() => /listening on (http:\S+)/.exec(said)?.[1] ?? assert.fail(`it has not started: ${said}`)), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function startExample(name, gatewayUrl) {
  const { url, stop } = await startService(process.execPath, ["server.mjs"], inRoot("examples", name), gatewayUrl);
  const get = async (path, user) => {
    const answer = await fetch(url + path, { headers: user ? { "x-user": user } : {} });
    return { status: answer.status, headers: answer.headers, body: await answer.json() };
  };
  return { get, stop };
}

for (const name of ["hono", "express"]) {
  test(`examples/${name} holds its users to the gateway's plans`, async () => {
    const plan_id = `example-${name}`;
    await gateway.createPlan({ plan_id, daily_limit: 100, monthly_token_limit: 300, endpoints: [{ name: "export", max_requests: 2, per_seconds: 3600 }] });
    const [user, other] = [await gateway.createUser({ user_id: `${name}-1`, plan_id }), await gateway.createUser({ user_id: `${name}-2`, plan_id })];
    const example = await startExample(name);
    try {
      for (const left of ["1", "0"]) {
        const answer = await example.get("/export/may", user);
        assert.deepEqual([answer.status, answer.body], [200, { exported: "may" }]);
        assert.match(answer.headers.get("ratelimit"), new RegExp(`"endpoint:export";r=${left};`));
      }
      const refused = await example.get("/export/may", user);
      assert.equal(refused.status, 429);
      assert.equal(refused.body.error.policy, "endpoint:export");
      assert.equal(refused.body.resetAt, refused.body.error.reset_at);
      assert.match(refused.headers.get("retry-after"), /^[1-9]\d*$/);
      assert.equal(refused.headers.get("x-sluice-decision"), "refused");
      assert.equal((await example.get("/export/may", other)).status, 200);

      assert.equal((await example.get("/summary", user)).status, 200);
      await eventually(async () => {
        const row = await gateway.quotaRow(user);
        assert.deepEqual([row?.used_today, row?.tokens_used_this_month], [3, 42]);
      });
      assert.equal((await example.get("/export/may")).status, 401);
      assert.equal((await example.get("/export/may", "unheard-of")).status, 403);
    } finally {
      await example.stop();
    }
  });
}

test("examples/README.md leads to a service that holds a demo user to their plan", async () => {
  const page = blocks("examples/README.md");
  assert.deepEqual(page.map(({ name }) => name), ["build", "create-service", "create-key", "start-service", "call-service"]);
  for (const user of demoUsers) await gateway.createUser(user);
  const shell = startShell();
  const [build, createService, createKey, start, call] = page.map(({ text }) => text.replaceAll("http://localhost:8787", gateway.url));
  const curl = (line) => shell.curl(line, { ADMIN_TOKEN: gateway.adminToken });
  let example;
  try {
    await run("sh", ["-c", build], { show: false });
    assert.equal((await curl(createService)).status, 201);
    const { status, body } = await curl(createKey);
    assert.deepEqual([status, body.scope], [201, "service"]);
    example = await startService("sh", ["-c", start.replace("slc_live_…", body.key)], inRoot());
    for (let left = 9; left >= 0; left--) {
      const answer = await curl(call.replace("http://localhost:3001", example.url));
      assert.equal(answer.status, 200, answer.text);
      assert.match(answer.text, new RegExp(`^ratelimit: "daily";r=${left};`, "im"));
    }
    assert.equal((await curl(call.replace("http://localhost:3001", example.url))).status, 429);
  } finally {
    await example?.stop();
    shell.stop();
  }
});

test("an example whose gateway is gone goes on by its own small cap", async () => {
  const example = await startExample("express", "http://127.0.0.1:1");
  try {
    const statuses = [];
    for (let n = 0; n < 32; n++) statuses.push((await example.get("/export/may", "anyone")).status);
    assert.deepEqual(statuses, [...Array(30).fill(200), 503, 503]);
  } finally {
    await example.stop();
  }
});
