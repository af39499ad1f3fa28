// Alerts are raised once and cleared when what they tell of is over.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { createServer } from "node:http";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
const minute = 60_000;
let gateway, upstream, receiver, told;
let offset = 0;

before(async () => {
  receiver = createServer((request, response) => {
    let body = "";
    request.on("data", (bytes) => (body += bytes));
    request.on("end", () => {
      told.push({ id: request.headers["webhook-id"], ...JSON.parse(body) });
      response.end();
    });
  });
  await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, vars: { ALERT_WEBHOOK_URL: `http://127.0.0.1:${receiver.address().port}/alerts` } });
  await gateway.keepToDocument();
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
  receiver.close();
});
beforeEach(() => (told = []));

const chat = (key) => gateway.call("/v1/chat/completions", { key, json: hello });
const alerts = async (query = "") => (await gateway.admin(`/admin/alerts${query}`)).body.data;
const open = async (kind) => (await alerts("?status=open")).filter((alert) => alert.kind === kind);

async function passes(ms) {
  offset += ms;
  await gateway.restart({ vars: { CLOCK_OFFSET_MS: String(offset) } });
}

async function caller(plan = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
  return { user_id, plan_id, key: await gateway.createKey(user_id) };
}

/** `n` calls, and waits until the ledger knows of them. */
async function calls({ key, user_id }, n) {
  const counted = async () => (await gateway.usageRows(user_id)).reduce((sum, day) => sum + day.calls + day.rejected, 0);
  const before = await counted();
  for (let i = 0; i < n; i++) await chat(key);
  await eventually(async () => assert.equal(await counted(), before + n));
}

test("a plan above the refusal rate for an hour raises one alert, and calm clears it", async () => {
  const user = await caller({ daily_limit: 2 });
  const calm = await caller();
  await gateway.scheduled();
  for (let i = 0; i < 4; i++) {
    await calls(user, 10);
    await calls(calm, 2);
    await passes(20 * minute);
    await gateway.scheduled();
    assert.equal((await open("refusal_rate")).length, i < 2 ? 0 : 1, `after ${20 * (i + 1)} minutes`);
  }
  const [alert] = await open("refusal_rate");
  assert.equal(alert.subject, user.plan_id);
  assert.deepEqual(Object.keys(alert), ["id", "kind", "subject", "opened_at", "closed_at", "detail"]);
  assert.equal(alert.closed_at, null);
  assert.match(alert.opened_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
  assert.ok(alert.detail.rate > 0.1 && alert.detail.refused <= alert.detail.calls);
  assert.equal((await gateway.admin("/metrics")).text.match(/^sluice_alerts_open\{kind="refusal_rate"\} (\d+)$/m)[1], "1");
  await passes(10 * minute);
  await gateway.scheduled();
  assert.deepEqual((await open("refusal_rate")).map((one) => one.id), [alert.id], "it is raised once");
  await gateway.admin(`/admin/users/${user.user_id}`, { method: "PATCH", json: { overrides: { daily_limit: 1000 } } });
  await calls(user, 10);
  await passes(10 * minute);
  await gateway.scheduled();
  assert.deepEqual(await open("refusal_rate"), []);
  const [closed] = (await alerts("?status=closed")).filter((one) => one.id === alert.id);
  assert.ok(closed.closed_at > closed.opened_at);
  const about = told.filter((one) => one.data.id === alert.id);
  assert.deepEqual(about.map((one) => one.type), ["alert.raised", "alert.cleared"]);
  assert.equal(new Set(about.map((one) => one.id)).size, 2);
});

test("calls that passed without their account raise an alert", async () => {
  const user = await caller();
  await chat(user.key);
  await gateway.faults([{ binding: "ACCOUNTS", mode: "error", match: user.user_id }]);
  for (let i = 0; i < 3; i++) assert.equal((await chat(user.key)).status, 200);
  await gateway.scheduled();
  const [alert] = await open("failed_open");
  assert.equal(alert.subject, "accounts");
  assert.equal(alert.detail.calls, 3);
  assert.ok(alert.detail.seconds >= 1);
  await gateway.noFaults();
  await gateway.scheduled();
  await passes(20 * minute);
  await gateway.scheduled();
  assert.deepEqual(await open("failed_open"), []);
  await eventually(async () => assert.deepEqual((await gateway.usageRows(user.user_id)).map((day) => [day.calls, day.failed_open]), [[4, 3]]));
});

test("dead letters, a lagging ledger and drift raise alerts that end", async () => {
  const now = Date.now() + offset;
  const { user_id, key } = await caller();
  await chat(key);
  await eventually(async () => assert.ok(await gateway.quotaRow(user_id)));
  await gateway.d1.prepare("INSERT INTO dead_letters VALUES ('m1', 'sluice-tasks', '{', 'not json', ?)").bind(now).run();
  await gateway.d1.prepare("UPDATE user_quotas SET used_today = 50 WHERE user_id = ?").bind(user_id).run();
  await gateway.scheduled();
  const found = Object.fromEntries((await alerts("?status=open")).map((alert) => [alert.kind, alert]));
  assert.deepEqual([found.dead_letter.subject, found.dead_letter.detail], ["sluice-tasks", { count: 1 }]);
  assert.deepEqual([found.drift.subject, found.drift.detail], ["ledger_edited", { users: 1 }]);
  // The account publishes what was mended, and may do so in between.
  await eventually(async () => {
    await gateway.d1.prepare("UPDATE user_quotas SET lag_ms = 90000 WHERE user_id = ?").bind(user_id).run();
    await gateway.scheduled();
    assert.equal((await open("ledger_lag")).length, 1);
  });
  await passes(25 * 60 * minute);
  await gateway.scheduled();
  assert.deepEqual(await alerts("?status=open"), []);
});

test("the list is the operator's, comes in pages and takes no nonsense", async () => {
  assert.equal((await gateway.call("/admin/alerts")).status, 401);
  assert.equal((await gateway.admin("/admin/alerts?status=maybe")).status, 400);
  const all = await alerts();
  const first = (await gateway.admin("/admin/alerts?limit=2")).body;
  const second = (await gateway.admin(`/admin/alerts?limit=200&cursor=${first.next_cursor}`)).body;
  assert.deepEqual([...first.data, ...second.data].map((one) => one.id), all.map((one) => one.id));
  assert.equal(second.next_cursor, null);
});
