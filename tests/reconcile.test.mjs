// Account and ledger come apart in every way they can, and agree again on the documented truth.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
  gateway = await startGateway({ upstream });
  await gateway.keepToDocument();
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const chat = (key) => gateway.call("/v1/chat/completions", { key, json: hello });
const reconcile = async (json) => {
  const answer = await gateway.admin("/admin/reconcile", { json });
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
};
const policy = async (key, name) => (await gateway.call("/api/quota", { key })).body.policies.find((p) => p.name === name);
const run = (sql, ...values) => gateway.d1.prepare(sql).bind(...values).run();

/** A user who has made `calls` calls that the ledger knows of. */
async function caller(calls, plan = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, daily_limit: 10, monthly_token_limit: 100_000, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
  const key = await gateway.createKey(user_id);
  for (let i = 0; i < calls; i++) assert.equal((await chat(key)).status, 200);
  await ledger(user_id, calls, calls * 12);
  return { user_id, key };
}

const ledger = (user_id, calls, tokens) =>
  eventually(async () => {
    const row = await gateway.quotaRow(user_id);
    assert.deepEqual([row?.used_today ?? 0, row?.tokens_used_this_month ?? 0], [calls, tokens]);
  });

test("where nothing differs nothing is changed", async () => {
  const { user_id } = await caller(3);
  const before = await gateway.quotaRow(user_id);
  const report = await reconcile({ user_id });
  assert.deepEqual([report.checked, report.drifted], [1, 0]);
  assert.equal(report.data[0].drift, "none");
  assert.deepEqual(report.data[0].account, report.data[0].ledger);
  assert.deepEqual(await gateway.quotaRow(user_id), before);
});

test("an operator's edit of the ledger holds", async () => {
  const { user_id, key } = await caller(8);
  for (const used of [2, 9]) {
    await run("UPDATE user_quotas SET used_today = ?, tokens_used_this_month = 500 WHERE user_id = ?", used, user_id);
    const report = await reconcile({ user_id });
    assert.equal(report.data[0].drift, "ledger_edited");
    assert.equal(report.data[0].ledger.used_today, used);
    assert.equal((await policy(key, "daily")).used, used);
    assert.equal((await policy(key, "monthly-tokens")).used, 500);
    await ledger(user_id, used, 500);
    assert.equal((await reconcile({ user_id })).data[0].drift, "none");
  }
  const audit = (await gateway.admin("/admin/audit")).body.data.filter(({ target }) => target === user_id);
  assert.deepEqual(audit.map(({ action, after }) => [action, after.drift]), Array(2).fill(["user.reconcile", "ledger_edited"]));
  const answers = [];
  for (let i = 0; i < 3; i++) answers.push((await chat(key)).status);
  assert.deepEqual(answers, [200, 429, 429]);
});

test("an edit under way is not overwritten by the account's next publication", async () => {
  const { user_id, key } = await caller(4);
  await run("UPDATE user_quotas SET used_today = 0 WHERE user_id = ?", user_id);
  await chat(key);
  await ledger(user_id, 1, 60);
  assert.equal((await policy(key, "daily")).used, 1);
  const drifts = await gateway.d1.prepare("SELECT kind FROM drifts WHERE user_id = ?").bind(user_id).all();
  assert.deepEqual(drifts.results.map((row) => row.kind), ["ledger_edited"]);
});

test("an edit of a day that is over changes nothing", async () => {
  const { user_id, key } = await caller(4);
  await run("UPDATE user_quotas SET used_today = 0, day_since_ms = day_since_ms - 86400000 WHERE user_id = ?", user_id);
  await reconcile({ user_id });
  assert.equal((await policy(key, "daily")).used, 4);
});

test("a ledger restored from before is told again, days included", async () => {
  const { user_id, key } = await caller(2);
  const [quotas, [day]] = [await gateway.quotaRow(user_id), await gateway.usageRows(user_id)];
  for (let i = 0; i < 5; i++) await chat(key);
  await ledger(user_id, 7, 84);
  const restore = async () => {
    await run("UPDATE user_quotas SET used_today = ?, tokens_used_this_month = ?, seq = ? WHERE user_id = ?", quotas.used_today, quotas.tokens_used_this_month, quotas.seq, user_id);
    await run("UPDATE daily_usage SET calls = ?, seq = ? WHERE user_id = ?", day.calls, day.seq, user_id);
  };
  const gone = async () => {
    await run("DELETE FROM user_quotas WHERE user_id = ?", user_id);
    await run("DELETE FROM daily_usage WHERE user_id = ?", user_id);
  };
  // The alarm stores what the ledger has confirmed, as it has long since an hour ago.
  await gateway.account(user_id).runAlarm();
  for (const [lose, evict] of [[restore, false], [gone, false], [restore, true]]) {
    await lose();
    if (evict) await gateway.account(user_id).evict();
    assert.equal((await policy(key, "daily")).remaining, 3, "nobody is let through meanwhile");
    const report = await reconcile({ user_id });
    assert.equal(report.data[0].drift, "ledger_behind");
    assert.equal(report.data[0].account.used_today, 7);
    await ledger(user_id, 7, 84);
    assert.deepEqual((await gateway.usageRows(user_id)).map((one) => [one.calls, one.prompt_tokens]), [[7, 49]]);
    assert.equal((await reconcile({ user_id })).data[0].drift, "none");
    await gateway.account(user_id).runAlarm();
  }
});

test("a lost account starts where the ledger stands", async () => {
  const { user_id, key } = await caller(6);
  await gateway.account(user_id).wipe();
  assert.equal((await reconcile({ user_id })).data[0].drift, "none");
  assert.equal((await policy(key, "daily")).used, 6);
});

test("a lost account knows its top-ups, and what went to the cheaper model", async () => {
  const lane = { over_quota: { strategy: "degrade", degrade_model: "m-cheap", degrade_daily_limit: 2 } };
  const { user_id, key } = await caller(10, lane);
  assert.equal((await gateway.admin(`/admin/users/${user_id}/grant`, { json: { policy: "daily", amount: 1 } })).status, 200);
  const decisions = [];
  const next = async () => decisions.push((await chat(key)).headers.get("x-sluice-decision"));
  for (let i = 0; i < 2; i++) await next();
  await ledger(user_id, 11, 144);
  await eventually(async () => assert.notEqual((await gateway.quotaRow(user_id)).beyond, ""));
  await gateway.account(user_id).wipe();
  const daily = await policy(key, "daily");
  assert.deepEqual([daily.limit, daily.used], [11, 11]);
  for (let i = 0; i < 2; i++) await next();
  assert.deepEqual(decisions, ["allowed", "degraded", "degraded", "refused"]);
});

test("an account that is older than the ledger takes the larger numbers", async () => {
  const { user_id, key } = await caller(5);
  await run("UPDATE user_quotas SET used_today = 8, tokens_used_this_month = 10, seq = seq + 100 WHERE user_id = ?", user_id);
  const report = await reconcile({ user_id });
  assert.equal(report.data[0].drift, "account_behind");
  assert.deepEqual([(await policy(key, "daily")).used, (await policy(key, "monthly-tokens")).used], [8, 60]);
  await ledger(user_id, 8, 60);
});

test("under fire the total still is what was served", async () => {
  const { user_id, key } = await caller(1, { daily_limit: 40 });
  let served = 1;
  const fire = Promise.all(
    Array.from({ length: 6 }, async () => {
      for (let i = 0; i < 10; i++) if ((await chat(key)).status === 200) served += 1;
    }),
  );
  for (let i = 0; i < 5; i++) await reconcile({ user_id });
  await fire;
  assert.equal(served, 40);
  await ledger(user_id, 40, 480);
  assert.equal((await reconcile({ user_id })).data[0].drift, "none");
});

test("everybody is compared: by the operator at once, by the clock in slices", async () => {
  const users = [await caller(3), await caller(3), await caller(3)];
  const edit = () => Promise.all(users.map(({ user_id }) => run("UPDATE user_quotas SET used_today = 1 WHERE user_id = ?", user_id)));
  await edit();
  const report = await reconcile({});
  assert.ok(report.checked >= 3);
  for (const { user_id } of users) assert.ok(report.data.some((row) => row.user_id === user_id && row.drift === "ledger_edited"));
  for (const { user_id } of users) await ledger(user_id, 1, 36);
  await run("UPDATE user_quotas SET used_today = 2 WHERE user_id = ?", users[0].user_id);
  await gateway.scheduled();
  assert.equal((await policy(users[0].key, "daily")).used, 2);
});

test("who may not, and nonsense", async () => {
  const { key } = await caller(0);
  assert.equal((await gateway.call("/admin/reconcile", { method: "POST" })).status, 401);
  assert.equal((await gateway.call("/admin/reconcile", { method: "POST", key })).status, 403);
  assert.equal((await gateway.admin("/admin/reconcile", { json: { user: "x" } })).status, 400);
  assert.equal((await gateway.admin("/admin/reconcile", { method: "GET" })).status, 405);
});

test("with the ledger out nothing is changed and the operator is told", async () => {
  const { user_id, key } = await caller(2);
  await gateway.faults([{ binding: "DB", mode: "error", match: "user_quotas" }]);
  assert.equal((await gateway.admin("/admin/reconcile", { json: { user_id } })).status, 503);
  await gateway.noFaults();
  assert.equal((await policy(key, "daily")).used, 2);
});
