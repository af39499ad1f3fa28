// Every dependency fails in every way, alone and together: known callers are answered in time, strangers never pass,
// and what was served is booked when it is over.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
const stranger = "slc_live_7Hq2mZ0dLxW4tYb9RkCs1NvE8gJp3U3YCseo";
const inTime = 6_000;
const cap = 5;
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
  gateway = await startGateway({ upstream, vars: { OUTAGE_LOCAL_PER_MINUTE: String(cap) } });
  await gateway.keepToDocument();
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const chat = (key) => gateway.call("/v1/chat/completions", { key, json: hello });
const policy = async (key, name) => (await gateway.call("/api/quota", { key })).body.policies.find((p) => p.name === name);

async function caller(plan = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, daily_limit: 100, monthly_token_limit: 100_000, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
  const key = await gateway.createKey(user_id);
  assert.equal((await chat(key)).status, 200);
  return { user_id, plan_id, key };
}

async function timed(work) {
  const began = Date.now();
  const answer = await work();
  const took = Date.now() - began;
  assert.ok(took < inTime, `${took} ms`);
  assert.notEqual(answer.status, 500, answer.text);
  return answer;
}

/** Everything that was served is in the account and in the ledger, once. */
async function booked({ user_id, key }, served) {
  await gateway.noFaults();
  await gateway.scheduled();
  await eventually(async () => {
    assert.deepEqual([(await policy(key, "daily")).used, (await policy(key, "monthly-tokens")).used], [served, served * 12]);
    const row = await gateway.quotaRow(user_id);
    assert.deepEqual([row?.used_today, row?.tokens_used_this_month], [served, served * 12]);
    const days = await gateway.usageRows(user_id);
    assert.deepEqual(days.map((day) => [day.calls, day.prompt_tokens + day.completion_tokens]), [[served, served * 12]]);
  }, 45_000);
}

const modes = [
  ["error", {}],
  ["hang", { ms: 70_000 }],
  ["slow", { ms: 3_000 }],
  ["garbage", {}],
];
const all = (bindings, mode, rest) => bindings.map((binding) => ({ binding, mode, ...rest }));

for (const [mode, rest] of modes) {
  test(`account store: ${mode}`, async () => {
    const [open, closed] = [await caller(), await caller({ on_outage: "closed" })];
    await gateway.faults(all(["ACCOUNTS"], mode, rest));
    const answers = await Promise.all([
      ...Array.from({ length: cap + 3 }, () => timed(() => chat(open.key))),
      timed(() => chat(closed.key)),
      timed(() => chat(stranger)),
    ]);
    const [strange, shut, ...served] = answers.reverse();
    assert.equal(served.filter((answer) => answer.status === 200).length, cap, "the local cap holds");
    for (const answer of served) assert.ok([200, 503].includes(answer.status), answer.text);
    assert.equal(served.find((answer) => answer.status === 200).headers.get("x-sluice-decision"), "open");
    assert.equal(shut.status, 503);
    assert.match(shut.headers.get("retry-after"), /^[1-9]\d*$/);
    assert.equal(strange.status, 401);
    await booked(open, 1 + cap);
    const metrics = (await gateway.admin("/metrics")).text;
    assert.match(metrics, new RegExp(`^sluice_failed_open_total\\{plan="${open.plan_id}"\\} ${cap}$`, "m"));
  });

  test(`ledger: ${mode}`, async () => {
    const user = await caller();
    await gateway.faults(all(["DB"], mode, rest));
    const answers = await Promise.all(Array.from({ length: 8 }, () => timed(() => chat(user.key))));
    assert.deepEqual(answers.map((answer) => answer.status), Array(8).fill(200));
    assert.equal(answers[0].headers.get("x-sluice-decision"), "allowed");
    assert.ok([401, 503].includes((await timed(() => chat(stranger))).status));
    await booked(user, 9);
  });

  test(`ledger: ${mode}, and the isolate knows nothing yet`, async () => {
    const user = await caller();
    await eventually(async () => assert.ok(await gateway.kv.get("snapshot:plans")));
    await gateway.scheduled();
    await eventually(async () => assert.ok((await gateway.kv.get("snapshot:plans")).includes(user.plan_id)), 15_000);
    await gateway.forget();
    await gateway.faults(all(["DB"], mode, rest));
    const answers = [];
    for (let i = 0; i < 4; i++) answers.push((await timed(() => chat(user.key))).status);
    assert.deepEqual(answers, [200, 200, 200, 200]);
    await booked(user, 5);
  });

  test(`key cache: ${mode}`, async () => {
    const user = await caller();
    await gateway.forget();
    await gateway.faults(all(["CACHE"], mode, rest));
    const answers = await Promise.all(Array.from({ length: 4 }, () => timed(() => chat(user.key))));
    assert.deepEqual(answers.map((answer) => answer.status), [200, 200, 200, 200]);
    assert.equal((await timed(() => chat(stranger))).status, 401);
    await booked(user, 5);
  });

  test(`queues: ${mode}`, async () => {
    const user = await caller({ daily_limit: 3, over_quota: { strategy: "queue" }, notify_at: [0.5] });
    await gateway.faults(all(["TASK_QUEUE", "NOTIFY_QUEUE"], mode, rest));
    for (let i = 0; i < 2; i++) assert.equal((await timed(() => chat(user.key))).status, 200);
    const over = await timed(() => gateway.call("/api/ai/query", { key: user.key, json: { prompt: "hi", model: "m-small" } }));
    assert.ok([202, 429, 503].includes(over.status), over.text);
    await booked(user, 3);
  });
}

for (const mode of ["error", "hang"]) {
  for (const pair of [["ACCOUNTS", "DB"], ["ACCOUNTS", "CACHE"], ["DB", "CACHE"], ["ACCOUNTS", "DB", "CACHE", "TASK_QUEUE", "NOTIFY_QUEUE"]]) {
    test(`${pair.join(" and ")}: ${mode}`, async () => {
      const user = await caller();
      await gateway.faults(all(pair, mode, { ms: 70_000 }));
      const answers = await Promise.all([...Array.from({ length: cap + 2 }, () => timed(() => chat(user.key))), timed(() => chat(stranger))]);
      const strange = answers.pop();
      assert.ok([401, 503].includes(strange.status), strange.text);
      for (const answer of answers) assert.ok([200, 503].includes(answer.status), answer.text);
      const served = answers.filter((answer) => answer.status === 200).length;
      if (pair.includes("ACCOUNTS")) assert.ok(served <= cap);
      assert.ok(served > 0, "a key seen a moment ago is known");
      await booked(user, 1 + served);
    });
  }
}

test("while the ledger hangs, hardly any call waits for it", async () => {
  const user = await caller();
  await gateway.faults([{ binding: "DB", mode: "hang", ms: 70_000 }]);
  const took = [];
  for (let i = 0; i < 30; i++) {
    const began = Date.now();
    assert.equal((await chat(user.key)).status, 200);
    took.push(Date.now() - began);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  took.sort((a, b) => a - b);
  assert.ok(took[20] < 500, `two thirds in ${took[20]} ms: ${took}`);
  await booked(user, 31);
});

test("an isolate that is lost during an outage loses nothing that the ledger took", async () => {
  const user = await caller();
  await gateway.faults([{ binding: "ACCOUNTS", mode: "error", match: user.user_id }]);
  for (let i = 0; i < 3; i++) assert.equal((await chat(user.key)).status, 200);
  const rows = async () => (await gateway.d1.prepare("SELECT booked_at_ms FROM open_calls WHERE user_id = ?").bind(user.user_id).all()).results;
  await eventually(async () => assert.equal((await rows()).length, 3));
  await gateway.kill9();
  await gateway.start();
  await booked(user, 4);
  await gateway.scheduled();
  await booked(user, 4);
  assert.ok((await rows()).every((row) => row.booked_at_ms > 0));
});

test("an answer of the account that is lost charges nothing twice", async () => {
  const user = await caller();
  await gateway.faults([{ binding: "ACCOUNTS", mode: "commit-then-error", times: 3 }]);
  let served = 1;
  for (let i = 0; i < 4; i++) if ((await chat(user.key)).status === 200) served += 1;
  await booked(user, served);
});

test("a publication that only says it was written is written again", async () => {
  const user = await caller();
  await gateway.faults([{ binding: "DB", mode: "garbage", op: "batch", match: "user_quotas", times: 2 }]);
  for (let i = 0; i < 3; i++) assert.equal((await chat(user.key)).status, 200);
  await booked(user, 4);
});

test("a call fails inside the account before it has decided, and the next one is well", async () => {
  const user = await caller();
  await gateway.account(user.user_id).evict();
  await gateway.faults([{ binding: "DB", mode: "error", match: "plans", times: 5 }]);
  const answer = await timed(() => chat(user.key));
  assert.ok([200, 503].includes(answer.status), answer.text);
  await gateway.noFaults();
  assert.equal((await chat(user.key)).status, 200);
  await booked(user, answer.status === 200 ? 3 : 2);
});
