// A busy user far from every limit is decided without a hop, and still never gets one call too many: not by many at
// once, not when a limit comes near, not when the runtime dies, and not after an operator has said no.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { after, before, describe, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", max_tokens: 5, messages: [{ role: "user", content: "hi" }] };
const usage = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage });
  gateway = await startGateway({ upstream });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

async function caller(plan = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, daily_limit: 100_000, monthly_token_limit: 100_000_000, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
  return { user_id, plan_id, key: await gateway.createKey(user_id) };
}

/** Each call says who sent it, so that the upstream's own log can be counted by user. */
const chat = (one, rest = {}) => gateway.call("/v1/chat/completions", { key: one.key, json: { ...hello, user: one.user_id, ...rest } });
const served = (one) => upstream.requests.filter((request) => request.json?.user === one.user_id).length;
const hops = async () => (await gateway.calls())["ACCOUNTS.ask"] ?? 0;
const day = async (one) => (await gateway.usageRows(one.user_id))[0];

/** Calls of `connections` at a time, until `done` says so of an answer or `most` were made. */
async function load(one, { connections = 8, most = Infinity, until = () => false, each = () => {} }) {
  let sent = 0;
  let over = false;
  const answers = [];
  const worker = async () => {
    while (!over && sent < most) {
      sent += 1;
      const answer = await chat(one);
      answers.push(answer.status);
      each(answer);
      if (until(answer)) over = true;
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  return answers;
}

/** Short calls until one needs no hop; gives how many. */
async function underLease(one, rest) {
  for (let calls = 1; calls < 100; calls++) {
    await gateway.resetCalls();
    assert.equal((await chat(one, rest)).status, 200);
    if ((await hops()) === 0) return calls;
  }
  assert.fail("no lease");
}

/** The ledger and the account have exactly what the upstream has served. */
async function agree(one, ms = 20_000) {
  await eventually(async () => {
    const row = await day(one);
    const count = served(one);
    assert.deepEqual([row.calls, row.prompt_tokens, row.completion_tokens], [count, count * 7, count * 5]);
    const quota = await gateway.quotaRow(one.user_id);
    assert.deepEqual([quota.used_today, quota.tokens_used_this_month], [count, count * 12]);
  }, ms);
}

test("under load hardly any call hops, and every one is counted", async () => {
  const one = await caller();
  await load(one, { most: 40 });
  await gateway.resetCalls();
  const answers = await load(one, { most: 600 });
  const asked = await hops();
  assert.ok(answers.every((status) => status === 200));
  assert.ok(asked < 600 * 0.35, `${asked} hops for 600 calls`);
  await agree(one);
});

test("a seldom caller is decided call by call", async () => {
  const one = await caller();
  for (let i = 0; i < 4; i++) {
    assert.equal((await chat(one)).status, 200);
    await eventually(async () => {
      const { policies } = (await gateway.call("/api/quota", { key: one.key })).body;
      assert.deepEqual(policies.map((policy) => [policy.name, policy.used, policy.reserved]), [["daily", i + 1, 0], ["monthly-tokens", (i + 1) * 12, 0]]);
    });
    await pause(700);
  }
});

test("what is left goes down call by call, and the quota page is exact at any time", async () => {
  const one = await caller({ daily_limit: 5_000 });
  let exact = 0;
  for (let i = 1; i <= 60; i++) {
    const answer = await chat(one);
    const left = Number(/"daily";r=(\d+)/.exec(answer.headers.get("ratelimit"))[1]);
    // While a lease is on its way, what it has not spent counts as used.
    assert.ok(left <= 5_000 - i, `${left} after ${i}`);
    if (left === 5_000 - i) exact += 1;
  }
  assert.ok(exact >= 50, `${exact}`);
  const { policies } = (await gateway.call("/api/quota", { key: one.key })).body;
  const daily = policies.find((policy) => policy.name === "daily");
  assert.deepEqual([daily.used, daily.remaining], [60, 4_940]);
});

test("with LEASES off every call asks", async () => {
  const one = await caller();
  await gateway.restart({ vars: { LEASES: "false" } });
  await load(one, { most: 20 });
  await gateway.resetCalls();
  await load(one, { most: 50 });
  assert.ok((await hops()) >= 50);
  await gateway.restart({ vars: { LEASES: "true" } });
  await agree(one);
});

test("a daily limit that comes near lets exactly so many pass, at 16 connections", async () => {
  const one = await caller({ daily_limit: 300 });
  const answers = await load(one, { connections: 16, most: 420 });
  // What a lease still held when others were refused has come back.
  await eventually(async () => assert.equal((await chat(one)).status, 429), 1_000).catch(() => {});
  for (let i = 0; i < 40; i++) {
    answers.push((await chat(one)).status);
    await pause(20);
  }
  assert.equal(served(one), 300);
  await agree(one);
});

test("60 at once with 10 left: 10 pass, straight after a busy time", async () => {
  const one = await caller({ daily_limit: 200 });
  await load(one, { connections: 4, most: 190 });
  assert.equal(served(one), 190);
  const answers = await Promise.all(Array.from({ length: 60 }, () => chat(one)));
  const passed = answers.filter((answer) => answer.status === 200).length;
  assert.equal(passed, 10);
  assert.equal(served(one), 200);
});

test("a rate is never overspent and no window sees one call too many", async () => {
  const one = await caller({ rate: { capacity: 120, refill_per_minute: 600 }, window: { max_requests: 200, minutes: 1 } });
  await load(one, { connections: 8, most: 500 });
  const times = upstream.requests.filter((request) => request.json?.user === one.user_id).map((request) => request.at);
  assert.ok(times.length >= 120 && times.length <= 200, `${times.length}`);
  // Taken at the upstream, so a little later than they were decided.
  const slack = 500;
  let missing = 0;
  times.forEach((at, index) => {
    missing = Math.max(0, missing - ((index ? at - times[index - 1] : 0) * 600) / 60_000) + 1;
    assert.ok(missing <= 120 + (slack * 600) / 60_000, `${missing} at call ${index}`);
  });
});

const admin = (path, json, method = "POST") => gateway.admin(path, { method, json });
const bites = {
  block: [(one) => admin(`/admin/users/${one.user_id}`, { status: "blocked" }, "PATCH"), 403],
  "switch to a plan without anything left": [
    async (one) => admin(`/admin/users/${one.user_id}`, { plan_id: await gateway.createPlan({ plan_id: `none-${one.plan_id}`, daily_limit: 0 }) }, "PATCH"),
    429,
  ],
  override: [(one) => admin(`/admin/users/${one.user_id}`, { overrides: { daily_limit: 1 } }, "PATCH"), 429],
  "revoked key": [
    async (one) => {
      const { results } = await gateway.d1.prepare("SELECT key_id FROM api_keys WHERE user_id = ?").bind(one.user_id).all();
      return gateway.admin(`/admin/keys/${results[0].key_id}`, { method: "DELETE" });
    },
    401,
  ],
  "edited plan": [(one) => admin(`/admin/plans/${one.plan_id}`, { daily_limit: 1 }, "PATCH"), 429],
};
for (const [name, [change, status]] of Object.entries(bites)) {
  test(`during load: ${name} bites in time`, async () => {
    const one = await caller();
    const seen = [];
    const working = load(one, { connections: 4, until: ({ status }) => status !== 200 || seen.at(-1) < Date.now() - 12_000, each: ({ status }) => status !== 200 && seen.push(status) });
    await pause(1_500);
    const told = await change(one);
    assert.ok(told.status < 300, told.text);
    const began = Date.now();
    await working;
    assert.ok(Date.now() - began < (name === "edited plan" ? 10_000 : 5_000));
    assert.equal(seen[0], status);
    const before = served(one);
    for (let i = 0; i < 10; i++) assert.equal((await chat(one)).status, status);
    assert.equal(served(one), before);
  });
}

test("told past this isolate, a block and a reset are in force within five seconds", async () => {
  const blocked = await caller();
  const working = load(blocked, { connections: 4, until: ({ status }) => status !== 200 });
  await pause(1_500);
  const { results } = await gateway.d1.prepare("UPDATE users SET status = 'blocked', version = version + 1 WHERE user_id = ? RETURNING *").bind(blocked.user_id).all();
  const { plan_id, status, version } = results[0];
  assert.equal(await gateway.account(blocked.user_id).tell({ adopt: { plan_id, status, version, overrides: {} } }), "done");
  const began = Date.now();
  await working;
  assert.ok(Date.now() - began < 5_000, `${Date.now() - began} ms`);

  const reset = await caller();
  await load(reset, { connections: 4, most: 200 });
  assert.equal(await gateway.account(reset.user_id).tell({ reset: ["daily"] }), "stands");
  await pause(5_000);
  const daily = (await gateway.call("/api/quota", { key: reset.key })).body.policies.find((policy) => policy.name === "daily");
  assert.deepEqual([daily.used, daily.reserved], [0, 0]);
});

test("a call that outlives its lease, one that fails and one whose caller leaves are settled once", async () => {
  const one = await caller();
  await load(one, { connections: 4, most: 30 });
  upstream.on("/v1/chat/completions", (request) => (request.json.user === one.user_id && request.json.top_p === 0.5 ? { delay: 6_000, usage } : { usage }));
  const slow = Array.from({ length: 3 }, () => chat(one, { top_p: 0.5 }));
  await load(one, { connections: 4, most: 60 });
  assert.ok((await Promise.all(slow)).every((answer) => answer.status === 200));
  upstream.on("/v1/chat/completions", { usage });
  await agree(one);
  const before = served(one);
  upstream.on("/v1/chat/completions", (request) => (request.json.top_p === 0.25 ? { status: 500 } : { usage }));
  const working = load(one, { connections: 3, most: 60 });
  const failed = await Promise.all(Array.from({ length: 5 }, () => chat(one, { top_p: 0.25 })));
  assert.ok(failed.every((answer) => answer.status >= 500));
  await working;
  await eventually(async () => {
    assert.deepEqual((await day(one)).calls, before + 60);
    assert.deepEqual((await gateway.quotaRow(one.user_id)).used_today, before + 60);
  }, 20_000);
  upstream.on("/v1/chat/completions", { usage });
});

test("the account store out while leases are held: nothing passes twice, all is booked", async () => {
  const one = await caller({ daily_limit: 100_000, on_outage: "closed" });
  await load(one, { connections: 4, most: 60 });
  const working = load(one, { connections: 4, most: 80 });
  await gateway.fault({ binding: "ACCOUNTS", mode: "commit-then-error", match: "take_back", times: 2 });
  await working;
  await agree(one);
  await gateway.noFaults();
});

test("an account out until its leases have run out is told once of what they let pass", async () => {
  const one = await caller();
  upstream.on("/v1/chat/completions", (request) => (request.json.user === one.user_id && request.json.top_p === 0.5 ? { delay: 3_000, usage } : { usage }));
  await underLease(one);
  const slow = Array.from({ length: 3 }, () => chat(one, { top_p: 0.5 }));
  await upstream.until(() => upstream.requests.filter((request) => request.json?.user === one.user_id && request.json.top_p === 0.5).length === 3);
  assert.equal(await hops(), 0);
  await gateway.fault({ binding: "ACCOUNTS", mode: "error" });
  assert.ok((await Promise.all(slow)).every((answer) => answer.status === 200));
  // The lease is waited for no longer, and every settlement has been tried as often as it ever is.
  await pause(10_000);
  await gateway.noFaults();
  assert.equal((await chat(one)).status, 200);
  await agree(one, 30_000);
  upstream.on("/v1/chat/completions", { usage });
});

test("killed where it stands, it loses no more than the leases and lets nobody overspend", async () => {
  const one = await caller({ daily_limit: 400 });
  let alive = true;
  const worker = async () => {
    while (alive) if (!(await chat(one).catch(() => null))) return;
  };
  const working = Array.from({ length: 6 }, worker);
  await upstream.until(() => served(one) >= 120);
  await gateway.kill9();
  alive = false;
  await Promise.all(working);
  await gateway.start();
  const at = served(one);
  // Whatever was out is waited for, then taken for spent.
  await pause(10_500);
  const daily = async () => (await gateway.call("/api/quota", { key: one.key })).body.policies.find((policy) => policy.name === "daily");
  const stands = await daily();
  assert.ok(stands.used + stands.reserved >= at, `${stands.used} + ${stands.reserved} booked of ${at}`);
  // A lease is at most an eighth of what was left when it was handed out, all together a quarter.
  assert.ok(stands.used <= at + 100, `${stands.used} booked of ${at}`);
  let refused = 0;
  while (refused < 20) if ((await chat(one)).status === 429) refused += 1;
  assert.ok(served(one) <= 400, `${served(one)}`);
  assert.ok(served(one) >= 300, `${served(one)}`);
});

describe("killed in the middle of a stream that a lease let pass, at most what came since its checkpoint is lost", () => {
  const plans = { "a limit on tokens": {}, "no limit on tokens": { monthly_token_limit: null } };
  const bound = { max_tokens: 2_000 };
  const countIn = (text) => (text.match(/" and"/g) ?? []).length;

  /** A stream under a lease, read as it comes. */
  async function stream(one, pieces, chunkDelay) {
    upstream.on("/v1/chat/completions", (request) => (request.json.stream ? { content: Array(pieces).fill(" and"), usage: null, chunkDelay } : { usage }));
    const calls = await underLease(one, bound);
    const json = { ...hello, ...bound, user: one.user_id, stream: true };
    const answer = await gateway.fetch("/v1/chat/completions", { method: "POST", headers: { authorization: `Bearer ${one.key}`, "content-type": "application/json" }, body: JSON.stringify(json) });
    assert.equal(answer.status, 200);
    assert.equal(await hops(), 0);
    const read = { calls, text: "" };
    read.over = (async () => {
      for await (const chunk of answer.body) read.text += Buffer.from(chunk);
    })().catch(() => {});
    return read;
  }

  /** What the ledger has of the stream's tokens once its reservation has ended. */
  async function killed(one, read) {
    await gateway.kill9();
    await read.over;
    await gateway.clock(gateway.now() + 400_000);
    await gateway.account(one.user_id).runAlarm();
    return eventually(async () => {
      const { used_today, tokens_used_this_month } = await gateway.quotaRow(one.user_id);
      const tokens = tokens_used_this_month - read.calls * 12;
      assert.ok(used_today === read.calls + 1 && tokens > 0, `${used_today} calls of ${read.calls + 1}, ${tokens} tokens`);
      return tokens;
    });
  }

  for (const [name, plan] of Object.entries(plans)) {
    test(`by tokens, with ${name}`, async () => {
      const one = await caller(plan);
      const read = await stream(one, 5_000, 1);
      await eventually(() => assert.ok(countIn(read.text) >= 900), 5_000);
      const tokens = await killed(one, read);
      assert.ok(tokens >= 500 && tokens <= countIn(read.text) + 20, `${tokens} of ${countIn(read.text)}`);
    });

    test(`by time, with ${name}`, async () => {
      const one = await caller(plan);
      const read = await stream(one, 100, 50);
      await pause(1_900);
      const soon = countIn(read.text);
      await pause(700);
      const tokens = await killed(one, read);
      assert.ok(soon > 20 && tokens >= soon && tokens <= countIn(read.text) + 20, `${soon} < ${tokens} of ${countIn(read.text)}`);
    });
  }
});
