// The TypeScript client: its own tests, and its examples against the built Worker.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { eventually } from "./harness/eventually.mjs";
import { inRoot } from "../scripts/lib/paths.mjs";
import { run } from "../scripts/lib/run.mjs";

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

/** An example in a process of its own, as its README starts it. */
async function startExample(name, url = gateway.url) {
  const env = { ...process.env, SLUICE_URL: url, SLUICE_SERVICE_KEY: service, PORT: "0" };
  const child = spawn(process.execPath, ["server.mjs"], { cwd: inRoot("examples", name), env, stdio: ["ignore", "pipe", "inherit"] });
  let said = "";
  child.stdout.on("data", (bytes) => (said += bytes));
  const url_of = () => /listening on (http:\S+)/.exec(said)?.[1];
  await eventually(() => assert.ok(url_of(), `${name} has not started`));
  const get = async (path, user) => {
    const answer = await fetch(url_of() + path, { headers: user ? { "x-user": user } : {} });
    return { status: answer.status, headers: answer.headers, body: await answer.json() };
  };
  return { get, stop: () => new Promise((resolve) => child.once("exit", resolve) && child.kill()) };
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
