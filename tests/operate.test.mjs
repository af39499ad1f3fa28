// docs/operate.md, done as it is written: every line is run, in the order of the page, and what it promises is looked for.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "./harness/eventually.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { blocks } from "./harness/page.mjs";
import { startShell } from "./harness/shell.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const lines = blocks("docs/operate.md").filter(({ language }) => language === "sh");
const shell = startShell();
let gateway, service;
let env;

before(async () => {
  service = await startUpstream();
  gateway = await startGateway();
  env = { SLUICE: gateway.url, ADMIN_TOKEN: gateway.adminToken };
});
after(async () => {
  await gateway.stop();
  await service.stop();
  shell.stop();
});

const chat = { model: "mock-small", messages: [{ role: "user", content: "hi" }] };
const call = (key = env.SLUICE_KEY) => gateway.call("/v1/chat/completions", { key, json: chat });
const calls = async (statuses) => {
  for (const status of statuses) assert.equal((await call()).status, status);
};
const quota = async () => (await gateway.call("/api/quota", { key: env.SLUICE_KEY })).body;
const daily = async () => (await quota()).policies.find(({ name }) => name === "daily");

/** What holds after each line; `status` where it isn't 200, `before` where the page takes something for granted. */
const promises = {
  "create-plan": {
    status: 201,
    check: ({ body }) => assert.deepEqual([body.daily_limit, body.max_concurrent, body.endpoints], [3, null, []]),
  },
  "change-plan": { check: ({ body }) => assert.deepEqual([body.daily_limit, body.max_concurrent], [3, 20]) },
  "create-user": { status: 201, check: ({ body }) => assert.deepEqual([body.user_id, body.plan_id, body.status], ["ann", "team", "active"]) },
  "create-key": {
    status: 201,
    async check({ body }) {
      Object.assign(env, { SLUICE_KEY: body.key, KEY_ID: body.key_id });
      assert.equal((await quota()).plan.plan_id, "team");
    },
  },
  "list-keys": {
    check({ body, text }) {
      assert.deepEqual(body.data.map(({ key_id }) => key_id), [env.KEY_ID]);
      assert.ok(!text.includes(env.SLUICE_KEY));
    },
  },
  "rotate-key": {
    status: 201,
    async check({ body }) {
      await calls([200]);
      env.OLD_KEY_ID = env.KEY_ID;
      Object.assign(env, { OLD_KEY: env.SLUICE_KEY, SLUICE_KEY: body.key });
      await calls([200]);
      assert.equal((await daily()).used, 2);
    },
  },
  "revoke-key": {
    status: 204,
    async check() {
      assert.equal((await call(env.OLD_KEY)).status, 401);
      await calls([200, 429]);
    },
  },
  "see-quota": {
    check({ body }) {
      const { limit, used, remaining } = body.policies.find(({ name }) => name === "daily");
      assert.deepEqual([body.user_id, limit, used, remaining], ["ann", 3, 3, 0]);
    },
  },
  "top-up": {
    async check() {
      assert.equal((await daily()).remaining, 100);
      await calls([200]);
    },
  },
  reset: { check: async () => assert.deepEqual((await daily()).used, 0) },
  "switch-plan": {
    before: () => calls([200]),
    async check() {
      assert.equal((await quota()).plan.plan_id, "pro");
      assert.deepEqual((await daily()).used, 1);
    },
  },
  override: { check: async () => assert.equal((await daily()).limit, 5000 + 100) },
  block: { check: () => calls([403]) },
  unblock: { check: () => calls([200]) },
  "protect-route": { status: 201, check: ({ body }) => assert.deepEqual([body.path_prefix, body.methods], ["/reports", ["GET"]]) },
  "call-route": {
    before: () => service.always({ body: "a,b\n1,2" }),
    check({ text }) {
      assert.equal(text, "a,b\n1,2");
      assert.deepEqual([service.last.method, service.last.path], ["GET", "/reports/2026.csv"]);
      assert.ok(!JSON.stringify(service.last.headers).includes(env.SLUICE_KEY));
    },
  },
  stats: { later: true, check: ({ body }) => assert.ok(body.plans.find(({ plan_id }) => plan_id === "pro")?.refused_by.daily >= 1) },
  usage: { later: true, check: ({ body }) => assert.ok(body.data[0].calls >= 5 && body.data[0].rejected >= 1) },
  audit: {
    check({ body }) {
      const told = body.data.map(({ action }) => action);
      for (const action of ["plan.create", "user.grant", "user.reset", "user.block", "user.unblock", "key.rotate", "key.revoke", "route.create"]) {
        assert.ok(told.includes(action), action);
      }
    },
  },
  alerts: { check: ({ body }) => assert.ok(Array.isArray(body.data)) },
  metrics: { check: ({ text }) => assert.match(text, /^# TYPE sluice_/m) },
  reconcile: { check: ({ body }) => assert.ok(body) },
  ready: { check: ({ body }) => assert.ok(body) },
};

test("the page has a line for each promise and each line is one curl", () => {
  assert.deepEqual(lines.map(({ name }) => name), ["setup", ...Object.keys(promises)]);
  for (const { text } of lines.slice(1)) assert.match(text, /^curl -sS [^\n]+\n$/);
});

for (const { name, text } of lines.slice(1)) {
  test(name, async () => {
    const { status = 200, before: first, later, check } = promises[name];
    await first?.();
    const line = text.replace("https://reports.example.com", service.url);
    const once = async () => {
      const answer = await shell.curl(line, env);
      assert.equal(answer.status, status, answer.text);
      await check(answer);
    };
    await (later ? eventually(once) : once());
  });
}
