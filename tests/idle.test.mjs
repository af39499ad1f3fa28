// An account that nobody uses costs nothing: its alarm empties its storage, and it comes back right.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { newCaller } from "./harness/caller.mjs";
import { eventually } from "./harness/eventually.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const usage = { prompt_tokens: 10, completion_tokens: 40, total_tokens: 50 };
const HOUR = 3_600_000;
let gateway, upstream;
before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage });
  gateway = await startGateway({ upstream, vars: { USER_REQUEST_LIMIT_MAX_REQUESTS: "0" } });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

/** The tables in the account's storage, with their rows. */
async function stored(user) {
  const account = gateway.account(user.user_id);
  const tables = await account.sql("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_cf%' ESCAPE '\\' AND name NOT LIKE 'sqlite%'");
  const rows = await Promise.all(tables.map(({ name }) => account.sql(`SELECT count(*) AS n FROM ${name}`)));
  return rows.reduce((sum, [{ n }]) => sum + n, 0);
}

const used = async (user) => {
  const policies = await Promise.all(["daily", "monthly-tokens"].map((name) => user.policy(name)));
  return policies.map((policy) => policy.used);
};

async function threeCalls(plan) {
  const user = await newCaller(gateway, { daily_limit: 10, monthly_token_limit: 1_000, max_tokens_per_request: 100, ...plan });
  for (let i = 0; i < 3; i++) assert.equal((await user.chat()).status, 200);
  await user.billed(3, 30, 120);
  return user;
}

test("a day without a call: the storage is empty, the month is remembered, the day is new", async () => {
  await gateway.clock("2025-10-10T10:00:00Z");
  const user = await threeCalls();
  assert.ok((await stored(user)) > 0);
  assert.notEqual(await gateway.account(user.user_id).getAlarm(), null, "something is going to look after it");
  await gateway.clock("2025-10-11T11:00:00Z");
  await gateway.account(user.user_id).runAlarm();
  assert.equal(await stored(user), 0);
  assert.equal(await gateway.account(user.user_id).getAlarm(), null, "nothing wakes it any more");
  assert.deepEqual(await used(user), [0, 150]);
  assert.equal((await user.chat()).status, 200);
  await eventually(async () => assert.deepEqual(await used(user), [1, 200]));
  await eventually(async () => assert.deepEqual((await gateway.usageRows(user.user_id)).map((day) => day.calls), [3, 1]));
});

test("an account still in use by any of its limits is kept", async () => {
  const plans = [
    { window: { max_requests: 100, minutes: 60 * 24 * 3 } },
    { rate: { capacity: 10_000, refill_per_minute: 1 } },
    { endpoints: [{ name: "chat", max_requests: 5, per_seconds: 3 * 86_400 }] },
  ];
  await gateway.clock("2025-10-20T10:00:00Z");
  const users = [];
  for (const plan of plans) users.push(await threeCalls(plan));
  const grant = await threeCalls();
  const answer = await gateway.admin(`/admin/users/${grant.user_id}/grant`, { json: { policy: "daily", amount: 5, expires_at: "2025-10-30T00:00:00Z" } });
  assert.equal(answer.status, 200, answer.text);
  await gateway.clock("2025-10-21T11:00:00Z");
  // The bucket has 10,000 and three calls come back within minutes: it is full again and nothing is left to remember.
  for (const [user, kept] of [[users[0], true], [users[1], false], [users[2], true], [grant, true]]) {
    await gateway.account(user.user_id).runAlarm();
    assert.equal((await stored(user)) > 0, kept, user.plan_id);
  }
  assert.equal((await users[0].policy("window")).used, 3);
  assert.equal((await users[2].policy("endpoint:chat")).used, 3);
  assert.deepEqual(await grant.policy("daily").then(({ limit, remaining }) => [limit, remaining]), [15, 15]);
});

test("nothing is forgotten that the ledger does not have", async () => {
  await gateway.clock("2025-11-03T10:00:00Z");
  const user = await threeCalls();
  await gateway.fault({ binding: "DB", mode: "error", match: "user_quotas" });
  assert.equal((await user.chat()).status, 200);
  await eventually(async () => assert.deepEqual(await used(user), [4, 200]));
  await gateway.clock("2025-11-05T10:00:00Z");
  await gateway.account(user.user_id).runAlarm();
  assert.ok((await stored(user)) > 0, "the ledger is out, so the account keeps what it knows");
  await gateway.noFaults();
  await gateway.account(user.user_id).runAlarm();
  assert.deepEqual((await gateway.usageRows(user.user_id)).map((day) => [day.calls, day.date]), [[4, "2025-11-03"]]);
  await gateway.clock(Date.parse("2025-11-05T10:00:00Z") + 25 * HOUR);
  await gateway.account(user.user_id).runAlarm();
  assert.equal(await stored(user), 0);
  assert.deepEqual(await used(user), [0, 200]);
});

test("an account that only its alarm wakes publishes under its user's name", async () => {
  await gateway.clock("2025-12-01T10:00:00Z");
  const user = await threeCalls();
  await gateway.fault({ binding: "DB", mode: "error", match: "user_quotas" });
  assert.equal((await user.chat()).status, 200);
  await eventually(async () => assert.deepEqual(await used(user), [4, 200]));
  await gateway.restart({ faults: [] });
  await eventually(async () => assert.deepEqual((await gateway.usageRows(user.user_id)).map((day) => day.calls), [4]));
  const { results } = await gateway.d1.prepare("SELECT user_id FROM user_quotas WHERE user_id NOT IN (SELECT user_id FROM users)").all();
  assert.deepEqual(results, []);
});
