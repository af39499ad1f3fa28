// An exhausted user is refused from memory: hardly any hop, the same words, everything counted, and whatever an
// operator does about it is in force within five seconds.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { after, before, test } from "node:test";
import parse from "parse-prometheus-text-format";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", max_tokens: 5, messages: [{ role: "user", content: "hi" }] };
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } });
  gateway = await startGateway({ upstream });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const chat = (key, rest = {}) => gateway.call("/v1/chat/completions", { key, json: { ...hello, ...rest } });
const hops = async () => (await gateway.calls())["ACCOUNTS.ask"] ?? 0;

async function caller(plan = {}, user = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id, ...user });
  return { user_id, plan_id, key: await gateway.createKey(user_id) };
}

/** Calls until nothing is left and nothing is under way any more. */
async function exhausted(plan = { daily_limit: 3 }) {
  const one = await caller(plan);
  while ((await chat(one.key)).status === 200);
  await eventually(async () => {
    await gateway.resetCalls();
    assert.equal((await chat(one.key)).status, 429);
    assert.equal((await chat(one.key)).status, 429);
    assert.ok((await hops()) <= 1);
  });
  return one;
}

/** Calls on and on until a call is answered with `status`; how long that took. */
async function until(status, key) {
  const began = Date.now();
  for (;;) {
    const answer = await chat(key);
    if (answer.status === status) return Date.now() - began;
    assert.ok(Date.now() - began < 5_000, `after 5 s still ${answer.status}`);
    await pause(20);
  }
}

test("two hundred refusals cost a handful of hops, and every one is counted", async () => {
  const { key, user_id, plan_id } = await exhausted();
  const before = (await chat(key)).status;
  assert.equal(before, 429);
  await gateway.resetCalls();
  const began = Date.now();
  for (let i = 0; i < 10; i++) {
    const answers = await Promise.all(Array.from({ length: 20 }, () => chat(key)));
    assert.ok(answers.every((answer) => answer.status === 429));
  }
  const took = Date.now() - began;
  const asked = await hops();
  assert.ok(asked <= 3 + (took / 3_000) * 20, `${asked} hops in ${took} ms`);
  await eventually(async () => {
    const [day] = await gateway.usageRows(user_id);
    const refusedBefore = day.rejected;
    const metrics = parse((await gateway.admin("/metrics")).text);
    const series = metrics.find((one) => one.name === "sluice_refused_total").metrics.filter((one) => one.labels.plan === plan_id);
    assert.deepEqual(series.map((one) => [one.labels.policy, one.labels.reason, Number(one.value)]), [["daily", "limit", refusedBefore]]);
    assert.ok(refusedBefore >= 201, `${refusedBefore}`);
  });
});

test("100 calls of which 60 are refused read 100 and 60, refused here or there", async () => {
  const { key, user_id, plan_id } = await caller({ daily_limit: 40 });
  let passed = 0;
  for (let i = 0; i < 100; i++) if ((await chat(key)).status === 200) passed += 1;
  assert.equal(passed, 40);
  await eventually(async () => {
    const metrics = parse((await gateway.admin("/metrics")).text);
    const of = (name) => metrics.find((one) => one.name === name).metrics.filter((one) => one.labels.plan === plan_id).map((one) => Number(one.value));
    assert.deepEqual([of("sluice_calls_total"), of("sluice_refused_total")], [[100], [60]]);
    const [day] = await gateway.usageRows(user_id);
    assert.deepEqual([day.calls, day.rejected], [40, 60]);
  });
});

test("the words are those of the account, and the wait is counted down", async () => {
  const { key } = await exhausted();
  await pause(3_100);
  const told = await chat(key);
  await gateway.resetCalls();
  await pause(1_200);
  const remembered = await chat(key);
  assert.equal(await hops(), 0);
  const plain = ({ request_id, ...body }) => body;
  assert.deepEqual(plain(remembered.body), plain(told.body));
  const kept = ["ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-should-retry", "x-sluice-decision", "content-type"];
  for (const name of kept) assert.equal(remembered.headers.get(name), told.headers.get(name), name);
  const waits = [told, remembered].map((answer) => Number(answer.headers.get("retry-after")));
  assert.ok(waits[0] - waits[1] >= 1 && waits[0] - waits[1] <= 2, `${waits}`);
  assert.match(remembered.headers.get("ratelimit"), new RegExp(`"daily";r=0;t=${waits[1]}$`));
});

test("a short limit's refusal is given up the moment it could pass", async () => {
  const { key } = await caller({ rate: { capacity: 2, refill_per_minute: 40 } });
  while ((await chat(key)).status === 200);
  const began = Date.now();
  await gateway.resetCalls();
  let tries = 0;
  while ((await chat(key)).status !== 200) {
    tries += 1;
    await pause(10);
  }
  assert.ok(Date.now() - began < 2_000);
  assert.ok(tries < 5 || (await hops()) < tries, `${await hops()} hops for ${tries} tries`);
});

test("a reset, a top-up, an override, another plan and an edited one are in force in time", async (t) => {
  const roomy = await caller({ daily_limit: 1_000 });
  const json = (one, path, body, method = "POST") => gateway.admin(`/admin/users/${one.user_id}${path}`, { method, json: body });
  const ways = {
    reset: (one) => json(one, "/reset", {}),
    grant: (one) => json(one, "/grant", { policy: "daily", amount: 5 }),
    override: (one) => json(one, "", { overrides: { daily_limit: 100 } }, "PATCH"),
    upgrade: (one) => json(one, "", { plan_id: roomy.plan_id }, "PATCH"),
  };
  for (const [name, change] of Object.entries(ways)) {
    await t.test(name, async () => {
      const one = await exhausted();
      assert.equal((await change(one)).status, 200);
      assert.equal((await chat(one.key)).status, 200, "at once, in the isolate that carried it out");
    });
  }
  await t.test("edited plan", async () => {
    const one = await exhausted();
    const edited = await gateway.admin(`/admin/plans/${one.plan_id}`, { method: "PATCH", json: { daily_limit: 100 } });
    assert.equal(edited.status, 200, edited.text);
    assert.equal((await chat(one.key)).status, 200);
  });
  await t.test("elsewhere", async () => {
    const one = await exhausted();
    // As if another isolate had carried it out: this one has heard nothing.
    await gateway.account(one.user_id).sql("SELECT 1");
    assert.equal(await gateway.account(one.user_id).tell({ reset: [] }), "stands");
    assert.ok((await until(200, one.key)) < 3_500);
  });
});

test("a block is answered from memory and lifted in time", async () => {
  const { key, user_id } = await caller({ daily_limit: 100 });
  assert.equal((await chat(key)).status, 200);
  const status = (status) => gateway.admin(`/admin/users/${user_id}`, { method: "PATCH", json: { status } });
  assert.equal((await status("blocked")).status, 200);
  assert.equal((await chat(key)).body.error.code, "user_blocked");
  await gateway.resetCalls();
  for (let i = 0; i < 5; i++) assert.equal((await chat(key)).body.error.code, "user_blocked");
  assert.ok((await hops()) <= 1);
  assert.equal((await status("active")).status, 200);
  assert.equal((await chat(key)).status, 200);
});

test("what may come back is asked for: calls under way, a size, a cheaper way, a queue", async (t) => {
  await t.test("a call under way that fails gives its place to the next", async () => {
    const { key } = await caller({ daily_limit: 1 });
    upstream.next({ delay: 600, status: 500 });
    const before = upstream.count();
    const first = chat(key);
    await upstream.until((u) => u.count() > before);
    await eventually(async () => assert.equal((await chat(key)).status, 429));
    assert.ok((await first).status >= 500);
    assert.equal((await chat(key)).status, 200);
  });
  await t.test("a call too large for the month says nothing of a small one", async () => {
    const { key } = await caller({ monthly_token_limit: 40 });
    assert.equal((await chat(key, { messages: [{ role: "user", content: "a word ".repeat(60) }] })).status, 400);
    assert.equal((await chat(key, { max_tokens: 1 })).status, 200);
  });
  await t.test("degraded calls go on", async () => {
    const { key } = await caller({ daily_limit: 1, over_quota: { strategy: "degrade", degrade_model: "m-cheap", degrade_daily_limit: 3 } });
    const decisions = [];
    for (let i = 0; i < 5; i++) decisions.push((await chat(key)).headers.get("x-sluice-decision"));
    assert.deepEqual(decisions, ["allowed", "degraded", "degraded", "degraded", "refused"]);
  });
  await t.test("an operation that passed before passes again for a service", async () => {
    const { key, user_id } = await caller({ daily_limit: 1 });
    const service = await gateway.createKey(await gateway.createUser({ user_id: `s-${user_id}` }), { scope: "service" });
    const consume = (operation_id) => gateway.call("/api/limits/consume", { key: service, json: { user_id, operation_id } });
    const first = await consume("a");
    assert.equal(first.body.allowed, true, first.text);
    await gateway.call("/api/limits/settle", { key: service, json: { reservation_id: first.body.reservation_id, tokens: 1 } });
    assert.equal((await chat(key)).status, 429);
    assert.equal((await consume("b")).body.allowed, false);
    assert.equal((await consume("a")).body.allowed, true);
  });
});

test("an account that is out for a while gets its counts later, once", async () => {
  const { key, user_id } = await exhausted();
  await pause(3_100);
  assert.equal((await chat(key)).status, 429);
  await eventually(async () => {
    const rejected = (await gateway.usageRows(user_id))[0].rejected;
    await pause(1_500);
    assert.equal((await gateway.usageRows(user_id))[0].rejected, rejected);
  });
  const before = (await gateway.usageRows(user_id))[0].rejected;
  await pause(500);
  assert.equal((await chat(key)).status, 429);
  // The hand-over is carried out, and its answer lost.
  await gateway.fault({ binding: "ACCOUNTS", mode: "commit-then-error", match: "note_refused", times: 1 });
  for (let i = 0; i < 9; i++) assert.equal((await chat(key)).status, 429);
  await eventually(async () => {
    assert.equal((await gateway.usageRows(user_id))[0].rejected, before + 10);
  });
  await pause(1_500);
  assert.equal((await gateway.usageRows(user_id))[0].rejected, before + 10);
  await gateway.noFaults();
});
