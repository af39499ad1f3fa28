// Every dependency fails in every way, alone and together: known callers are answered in time, strangers never pass,
// and what was served is booked when it is over.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
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
  // With this the account hears how that call ended: an isolate that is lost from now on takes nothing along.
  await policy(key, "daily");
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
    await eventually(async () => assert.ok((await gateway.kv.get("snapshot:plans"))?.includes(user.plan_id)), 15_000);
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

test("a call that passes open is bounded as its plan bounds every call", async () => {
  const capped = await caller({ max_tokens_per_request: 50, max_tokens_mode: "clamp" });
  await gateway.faults(all(["ACCOUNTS"], "error", {}));
  const bounds = [];
  for (const asked of [undefined, 20, 80]) {
    const answer = await gateway.call("/v1/chat/completions", { key: capped.key, json: { ...hello, max_tokens: asked } });
    assert.deepEqual([answer.status, answer.headers.get("x-sluice-decision")], [200, "open"], answer.text);
    bounds.push(upstream.last.json.max_tokens ?? upstream.last.json.max_completion_tokens);
  }
  assert.deepEqual(bounds, [50, 20, 50]);
  await booked(capped, 4);
});

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

test("a call that is refused because its account's answer was lost costs nothing", async () => {
  const user = await caller({ on_outage: "closed" });
  // The ask is made twice, and its answer is lost twice.
  await gateway.faults([{ binding: "ACCOUNTS", mode: "commit-then-error", match: user.user_id, times: 2 }]);
  assert.equal((await timed(() => chat(user.key))).status, 503);
  await booked(user, 1);
  assert.equal((await policy(user.key, "daily")).reserved, 0);
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

test("an account that is out when a call ends hears of it later, and charges what it used", async () => {
  const user = await caller({ on_outage: "closed" });
  const before = upstream.count();
  upstream.next({ delay: 1_500, usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
  const call = chat(user.key);
  await upstream.until(() => upstream.count() > before);
  await gateway.faults([{ binding: "ACCOUNTS", mode: "error", match: user.user_id }]);
  assert.equal((await call).status, 200);
  const owed = () => gateway.d1.prepare("SELECT calls, prompt + completion AS tokens, booked_at_ms FROM open_calls WHERE user_id = ?").bind(user.user_id).all();
  await eventually(async () => assert.deepEqual((await owed()).results, [{ calls: 0, tokens: 12, booked_at_ms: null }]), 30_000);
  await booked(user, 2);
  assert.equal((await policy(user.key, "monthly-tokens")).reserved, 0);
  await eventually(async () => {
    await gateway.scheduled();
    assert.ok((await owed()).results[0].booked_at_ms > 0);
  });
});

/** A call whose Wasm instance is gone gets no answer of ours: the runtime ends it, or the caller does. */
async function lost(work) {
  const outcome = await Promise.race([work().then((answer) => answer.status, () => "broken"), new Promise((resolve) => setTimeout(resolve, 3_000, "nothing"))]);
  assert.ok(["nothing", "broken", 500, 503].includes(outcome), `${outcome}`);
}

/** The leases of calls that died are over; what they had reserved is free, and their prompts are charged. */
async function charged({ user_id, key }, calls, served) {
  await policy(key, "daily");
  await gateway.restart({ vars: { CLOCK_OFFSET_MS: "45000" } });
  await gateway.account(user_id).runAlarm();
  const prompts = await eventually(async () => {
    const [daily, month] = [await policy(key, "daily"), await policy(key, "monthly-tokens")];
    assert.deepEqual([daily.used, month.reserved], [calls, 0]);
    const row = await gateway.quotaRow(user_id);
    assert.deepEqual([row.used_today, row.tokens_used_this_month], [calls, month.used]);
    const [day] = await gateway.usageRows(user_id);
    assert.deepEqual([day.calls, day.prompt_tokens + day.completion_tokens], [calls, month.used]);
    return month.used - served * 12;
  }, 20_000);
  const died = calls - served;
  assert.ok(prompts >= died && prompts <= died * 20, `${prompts} tokens for ${died} prompts`);
  await gateway.restart({ vars: { CLOCK_OFFSET_MS: "0" } });
}

const traps = [
  ["in the front, after a call was admitted", { binding: "CONTEXT", op: "waitUntil", skip: 1 }, 1],
  ["in the account, before it has decided", { binding: "STATE", op: "storage" }, 0],
];
for (const [where, trap, died] of traps) {
  test(`a panic ${where}: the next call is well and the counters are right`, async () => {
    await gateway.restart({ vars: { UPSTREAM_TIMEOUT_MS: "1000" } });
    const user = await caller();
    await gateway.account(user.user_id).evict();
    const before = upstream.count();
    await gateway.faults([{ ...trap, mode: "trap", times: 1 }]);
    await lost(() => chat(user.key));
    assert.equal(upstream.count(), before, "it came before the provider was asked");
    await gateway.noFaults();
    for (let i = 0; i < 3; i++) assert.equal((await timed(() => chat(user.key))).headers.get("x-sluice-decision"), "allowed");
    assert.match(gateway.logs(), /panicked at/);
    await charged(user, 4 + died, 4);
  });
}

test("a panic in the account, after the end of a call is stored: it is told again, and counts once", async () => {
  await gateway.restart();
  const user = await caller();
  await pause(1_500);
  const panics = () => gateway.logs().split("panicked at").length;
  const before = panics();
  await gateway.faults([{ binding: "STATE", op: "waitUntil", mode: "trap", times: 1 }]);
  // The end of a call is told after its answer; the panic takes both Wasm instances of this process along.
  await Promise.race([chat(user.key).catch(() => {}), pause(3_000)]);
  await eventually(() => assert.ok(panics() > before));
  await gateway.noFaults();
  for (let i = 0; i < 3; i++) assert.equal((await timed(() => chat(user.key))).status, 200);
  await charged(user, 5, 5);
});

test("a panic while an account publishes: what was decided is published by the next one", async () => {
  const user = await caller();
  // Once no publication is under way, the next call begins one.
  await pause(1_500);
  await gateway.faults([{ binding: "DB", op: "prepare", mode: "trap", match: "INSERT INTO user_quotas", times: 1 }]);
  const first = await Promise.race([chat(user.key).then((answer) => answer.status, () => 0), new Promise((resolve) => setTimeout(resolve, 3_000, 0))]);
  await gateway.noFaults();
  for (let i = 0; i < 3; i++) assert.equal((await timed(() => chat(user.key))).status, 200);
  const died = first === 200 ? 0 : 1;
  assert.ok(first === 200 || first === 0 || first === 500);
  await charged(user, 5, 5 - died);
});

test("a panic in a consumer: when its message comes again, the job is done and charged once", async () => {
  const user = await caller({ daily_limit: 1, over_quota: { strategy: "queue" } });
  const queued = await gateway.call("/api/ai/query", { key: user.key, json: { prompt: "hi", model: "m-small" } });
  assert.equal(queued.status, 202, queued.text);
  await gateway.admin(`/admin/users/${user.user_id}/reset`, { json: {} });
  await gateway.d1.prepare("UPDATE jobs SET not_before_ms = 0 WHERE job_id = ?").bind(queued.body.id).run();
  const worker = await gateway.mf.getWorker();
  const deliver = () => worker.queue("sluice-tasks", [{ id: "again", timestamp: new Date(), attempts: 1, body: JSON.stringify({ v: 1, job: queued.body.id, ticket: 1_000_000 }) }]);
  await gateway.faults([{ binding: "QUEUE", op: "body", mode: "trap", times: 1 }]);
  const first = await Promise.race([deliver().then(({ outcome }) => outcome, () => "exception"), new Promise((resolve) => setTimeout(resolve, 3_000, "nothing"))]);
  assert.ok(["exception", "nothing"].includes(first), `the message is not acknowledged: ${first}`);
  assert.equal((await gateway.call(`/api/jobs/${queued.body.id}`, { key: user.key })).body.status, "queued");
  assert.equal((await deliver()).outcome, "ok");
  await eventually(async () => {
    assert.equal((await gateway.call(`/api/jobs/${queued.body.id}`, { key: user.key })).body.status, "succeeded");
    assert.deepEqual([(await policy(user.key, "daily")).used, (await policy(user.key, "monthly-tokens")).used], [1, 12]);
    const days = await gateway.usageRows(user.user_id);
    assert.deepEqual(days.map((day) => [day.calls, day.prompt_tokens + day.completion_tokens]), [[2, 24]]);
  });
});
