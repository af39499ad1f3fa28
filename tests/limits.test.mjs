// Every limit of a plan through HTTP on the built Worker, and the clock moved over days and months.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { newCaller } from "./harness/caller.mjs";
import { eventually } from "./harness/eventually.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

let gateway, upstream;
before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, vars: { USER_REQUEST_LIMIT_MAX_REQUESTS: "0" } });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const caller = (plan) => newCaller(gateway, plan);
const statuses = (answers) => answers.map((a) => a.status);
const times = async (n, call) => {
  const answers = [];
  for (let i = 0; i < n; i++) answers.push(await call(i));
  return answers;
};

test("a bucket refuses beyond its burst, and its Retry-After waited out succeeds", async () => {
  const user = await caller({ rate: { capacity: 2, refill_per_minute: 60 } });
  assert.deepEqual(statuses(await times(2, () => user.chat())), [200, 200]);
  const refused = await user.chat();
  assert.equal(refused.status, 429);
  assert.equal(refused.body.error.code, "rate_limit_exceeded");
  assert.equal(refused.body.error.policy, "rate");
  assert.equal(refused.headers.get("x-should-retry"), null);
  const wait = Number(refused.headers.get("retry-after"));
  assert.equal(wait, 1);
  assert.match(refused.headers.get("ratelimit"), /^"rate";r=0;t=1$/);
  await new Promise((resolve) => setTimeout(resolve, wait * 1000));
  assert.equal((await user.chat()).status, 200);
});

test("a sliding window counts every authenticated call, failed ones too", async () => {
  const user = await caller({ window: { max_requests: 3, minutes: 5 } });
  upstream.next({ status: 500 });
  assert.equal((await user.chat()).status, 502);
  assert.equal((await user.chat({ messages: 1 })).status, 400);
  assert.equal((await user.chat()).status, 200);
  const refused = await user.chat();
  assert.equal(refused.body.error.policy, "window");
  assert.ok(Number(refused.headers.get("retry-after")) > 290);
  assert.equal(refused.headers.get("x-should-retry"), "false");
});

test("what one limit refuses costs none of the others", async () => {
  const user = await caller({
    daily_limit: 10,
    rate: { capacity: 10, refill_per_minute: 1 },
    endpoints: [{ name: "embeddings", max_requests: 2, per_seconds: 60 }],
  });
  assert.deepEqual(statuses(await times(6, () => user.embed())), [200, 200, 429, 429, 429, 429]);
  assert.equal((await user.chat()).status, 200);
  assert.equal((await user.policy("daily")).used, 3);
  assert.equal((await user.policy("rate")).remaining, 7);
  assert.equal((await user.policy("endpoint:embeddings")).used, 2);
});

test("input errors meet the bucket and no quota; upstream failures are given back", async () => {
  const user = await caller({ daily_limit: 10, monthly_token_limit: 10000, rate: { capacity: 10, refill_per_minute: 1 } });
  const bad = await times(12, () => user.chat({ max_tokens: -1 }));
  assert.deepEqual(statuses(bad), [...Array(10).fill(400), 429, 429]);
  assert.equal((await user.policy("daily")).used, 0);
  const other = await caller({ daily_limit: 10, monthly_token_limit: 10000, rate: { capacity: 10, refill_per_minute: 1 } });
  upstream.next(...Array(5).fill({ status: 500 }));
  assert.deepEqual(statuses(await times(5, () => other.chat())), Array(5).fill(502));
  assert.deepEqual(await Promise.all(["daily", "monthly-tokens", "rate"].map(async (p) => (await other.policy(p)).used)), [0, 0, 5]);
});

test("holds that only other calls keep are told apart from a quota that is used up", async () => {
  const user = await caller({ monthly_token_limit: 10000, max_tokens_per_request: 4000 });
  upstream.always({ delay: 1500, usage: { prompt_tokens: 10, completion_tokens: 40, total_tokens: 50 } });
  const answers = await Promise.all(Array.from({ length: 8 }, () => user.chat({ max_tokens: 4000 })));
  upstream.always({ usage: { prompt_tokens: 10, completion_tokens: 40, total_tokens: 50 } });
  const passed = answers.filter((a) => a.status === 200);
  const held = answers.filter((a) => a.status === 429);
  assert.ok(passed.length >= 2, `${passed.length} passed`);
  assert.equal(passed.length + held.length, 8);
  for (const answer of held) {
    assert.equal(answer.body.error.code, "tokens_reserved");
    assert.ok(Number(answer.headers.get("retry-after")) <= 5);
  }
  await eventually(async () => assert.equal((await user.policy("monthly-tokens")).reserved, 0));
  for (const _ of held) assert.equal((await user.chat({ max_tokens: 4000 })).status, 200);
  await eventually(async () => assert.deepEqual(await user.policy("monthly-tokens").then((p) => [p.used, p.reserved]), [400, 0]));
});

test("a month's tokens are never passed, however many call at once", async () => {
  const user = await caller({ daily_limit: 1000, monthly_token_limit: 1000, max_tokens_per_request: 200 });
  upstream.always((request) => {
    const max = JSON.parse(request.body).max_tokens;
    return { usage: { prompt_tokens: 5, completion_tokens: max, total_tokens: max + 5 } };
  });
  await Promise.all(Array.from({ length: 60 }, () => user.chat({ max_tokens: 200 })));
  upstream.always({});
  await eventually(async () => assert.equal((await user.policy("monthly-tokens")).reserved, 0));
  const month = await user.policy("monthly-tokens");
  assert.ok(month.used > 0 && month.used <= 1000, String(month.used));
});

test("concurrency frees its slots on every ending", async () => {
  const user = await caller({ max_concurrent: 2 });
  upstream.always({ delay: 1000 });
  const answers = await Promise.all(Array.from({ length: 4 }, () => user.chat()));
  assert.deepEqual(statuses(answers).sort(), [200, 200, 429, 429]);
  assert.equal(answers.find((a) => a.status === 429).body.error.type, "concurrent_requests");
  upstream.always({});
  upstream.next({ status: 503 }, { body: "no json" });
  await eventually(async () => assert.equal((await user.policy("concurrency")).used, 0));
  await user.chat();
  await user.chat();
  await eventually(async () => assert.equal((await user.policy("concurrency")).used, 0));
});

test("null is unlimited and 0 is none", async () => {
  const none = await caller({ daily_limit: 0 });
  const refused = await none.chat();
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get("x-ratelimit-limit"), "0");
  const all = await caller({});
  const answer = await all.chat();
  assert.equal(answer.status, 200);
  for (const [name, value] of answer.headers) assert.ok(!/ratelimit/.test(name), `${name}: ${value}`);
  const tokensOnly = await caller({ monthly_token_limit: 100000 });
  assert.equal(await tokensOnly.policy("daily"), undefined);
  assert.equal((await tokensOnly.policy("monthly-tokens")).limit, 100000);
  assert.equal((await caller({ allowed_models: [] }).then((u) => u.chat())).status, 403);
  assert.equal((await caller({ allowed_models: null }).then((u) => u.chat())).status, 200);
  assert.equal((await caller({ max_tokens_per_request: 0 }).then((u) => u.chat())).status, 400);
  assert.equal((await caller({ endpoints: [{ name: "embeddings", max_requests: 0, per_seconds: 60 }] }).then((u) => u.embed())).status, 429);
});

test("a cost above the whole quota is a 400, never an eternal wait", async () => {
  const user = await caller({ monthly_token_limit: 5 });
  const answer = await user.chat({ messages: [{ role: "user", content: "word ".repeat(200) }] });
  assert.equal(answer.status, 400);
  assert.equal(answer.body.error.code, "request_exceeds_quota");
  assert.equal(answer.headers.get("x-should-retry"), "false");
  assert.equal(answer.headers.get("retry-after"), null);
});

test("clamp lowers what reject refuses", async () => {
  const reject = await caller({ max_tokens_per_request: 100 });
  assert.equal((await reject.chat({ max_tokens: 101 })).body.error.code, "max_tokens_exceeded");
  const clamp = await caller({ max_tokens_per_request: 100, max_tokens_mode: "clamp" });
  upstream.reset();
  assert.equal((await clamp.chat({ max_tokens: 5000 })).status, 200);
  assert.equal(JSON.parse(upstream.requests[0].body).max_tokens, 100);
});

test("a shadow plan counts and lets through", async () => {
  const user = await caller({ daily_limit: 1, shadow: true });
  assert.equal((await user.chat()).headers.get("x-sluice-decision"), "allowed");
  const over = await user.chat();
  assert.equal(over.status, 200);
  assert.equal(over.headers.get("x-sluice-decision"), "shadow");
  assert.equal(over.headers.get("x-sluice-shadow"), "daily");
  assert.deepEqual(await user.policy("daily").then((p) => [p.used, p.remaining]), [2, 0]);
});

test("the settings are the window of plans that set none", async () => {
  const own = await startGateway({ upstream, vars: { USER_REQUEST_LIMIT_MAX_REQUESTS: "5", USER_REQUEST_LIMIT_WINDOW_MINUTES: "5" } });
  try {
    const user = await newCaller(own, { window: "default" });
    assert.deepEqual(statuses(await times(6, () => user.chat())), [200, 200, 200, 200, 200, 429]);
    await own.restart({ vars: { USER_REQUEST_LIMIT_ENABLED: "false" } });
    assert.equal((await user.chat()).status, 200);
  } finally {
    await own.stop();
  }
});

test("days end at midnight of the plan's zone", async () => {
  const zones = [
    ["UTC", "2025-06-10T23:59:45Z", "2025-06-11T00:00:00Z"],
    ["Asia/Tokyo", "2025-06-10T14:59:45Z", "2025-06-10T15:00:00Z"],
    ["America/New_York", "2025-03-09T05:30:00Z", "2025-03-10T04:00:00Z"],
    ["America/New_York", "2025-11-02T05:30:00Z", "2025-11-03T05:00:00Z"],
  ];
  for (const [timezone, at, reset] of zones) {
    const user = await caller({ daily_limit: 1, reset: { timezone } });
    await gateway.clock(at);
    assert.equal((await user.chat()).status, 200);
    const refused = await user.chat();
    assert.equal(refused.status, 429);
    assert.equal(refused.body.resetAt, reset);
    assert.equal(refused.headers.get("x-ratelimit-reset"), String(Date.parse(reset) / 1000));
    await gateway.clock(new Date(Date.parse(reset) - 3600_000).toISOString());
    assert.equal((await user.chat()).status, 429);
    await gateway.clock(reset);
    assert.equal((await user.chat()).status, 200);
  }
});

test("months are calendar months, or anchored and clamped", async () => {
  const month = { monthly_token_limit: 60, max_tokens_per_request: 50 };
  upstream.always({ usage: { prompt_tokens: 10, completion_tokens: 50, total_tokens: 60 } });
  const cases = [
    [1, "2025-01-15T12:00:00Z", "2025-01-31T12:00:00Z", "2025-02-01T00:00:00Z"],
    [1, "2024-02-10T12:00:00Z", "2024-02-29T23:59:30Z", "2024-03-01T00:00:00Z"],
    [31, "2025-02-05T12:00:00Z", "2025-02-27T23:59:30Z", "2025-02-28T00:00:00Z"],
    [31, "2025-03-01T12:00:00Z", "2025-03-30T23:59:30Z", "2025-03-31T00:00:00Z"],
  ];
  for (const [billing_day, used, still, reset] of cases) {
    const user = await caller({ ...month, reset: { billing_day } });
    await gateway.clock(used);
    assert.equal((await user.chat()).status, 200);
    await eventually(async () => assert.equal((await user.policy("monthly-tokens")).used, 60));
    await gateway.clock(still);
    const refused = await user.chat();
    assert.equal(refused.status, 429);
    assert.equal(refused.body.error.policy, "monthly-tokens");
    assert.equal(refused.body.resetAt, reset);
    await gateway.clock(reset);
    assert.equal((await user.chat()).status, 200);
  }
  upstream.always({});
});

test("a rolling day is 24 hours from the first call, and a refusal never moves it", async () => {
  const user = await caller({ daily_limit: 1, reset: { mode: "rolling" } });
  await gateway.clock("2025-05-01T10:00:00Z");
  assert.equal((await user.chat()).status, 200);
  const { resetAt } = (await user.chat()).body;
  assert.match(resetAt, /^2025-05-02T10:00:0/);
  await gateway.clock("2025-05-02T09:59:30Z");
  assert.equal((await user.chat()).body.resetAt, resetAt);
  await gateway.clock("2025-05-02T10:00:10Z");
  assert.equal((await user.chat()).status, 200);
});

test("each counter has its own period", async () => {
  const user = await caller({ daily_limit: 100, monthly_token_limit: 10000, tokens_per_minute: 1000, max_tokens_per_request: 900 });
  const spend = (total) => upstream.next({ usage: { prompt_tokens: 10, completion_tokens: total - 10, total_tokens: total } });
  await gateway.clock("2025-02-28T23:58:30Z");
  spend(900);
  assert.equal((await user.chat({ max_tokens: 890 })).status, 200);
  await eventually(async () => assert.equal((await user.policy("monthly-tokens")).used, 900));
  await gateway.clock("2025-02-28T23:59:40Z");
  spend(900);
  assert.equal((await user.chat({ max_tokens: 890 })).status, 200);
  await eventually(async () => assert.equal((await user.policy("monthly-tokens")).used, 1800));
  await gateway.clock("2025-03-01T00:00:50Z");
  assert.deepEqual([(await user.policy("daily")).used, (await user.policy("monthly-tokens")).used], [0, 0]);
  spend(500);
  assert.equal((await user.chat({ max_tokens: 400 })).status, 200);
  await eventually(async () => assert.equal((await user.policy("monthly-tokens")).used, 500));
  await gateway.clock("2025-03-02T00:00:01Z");
  assert.deepEqual([(await user.policy("daily")).used, (await user.policy("monthly-tokens")).used], [0, 500]);
});

test("a call that fails after midnight gives nothing to the new day", async () => {
  const user = await caller({ daily_limit: 10 });
  const midnight = Date.parse("2025-07-02T00:00:00Z");
  await gateway.clock(midnight - 10_000);
  const left = midnight - gateway.now();
  assert.ok(left > 1000, "the call is made before midnight");
  upstream.next({ delay: left + 500, status: 500 });
  assert.equal((await user.chat()).status, 502);
  assert.ok(gateway.now() > midnight);
  assert.deepEqual(await user.policy("daily").then((p) => [p.used, p.remaining]), [0, 10]);
  assert.deepEqual(statuses(await times(11, () => user.chat())), [...Array(10).fill(200), 429]);
});

test("a clock that steps back changes nothing", async () => {
  const user = await caller({ daily_limit: 2 });
  await gateway.clock("2025-08-02T00:00:10Z");
  assert.equal((await user.chat()).status, 200);
  await gateway.clock("2025-08-01T23:59:00Z");
  assert.equal((await user.chat()).status, 200);
  assert.equal((await user.chat()).status, 429);
  await gateway.clock("2025-08-02T00:01:00Z");
  assert.equal((await user.chat()).status, 429);
});

test("Retry-After is whole, agrees with t, and waited out it succeeds", async () => {
  const plans = [
    { rate: { capacity: 1, refill_per_minute: 7 } },
    { window: { max_requests: 1, minutes: 1 } },
    { daily_limit: 1 },
    { endpoints: [{ name: "chat", max_requests: 1, per_seconds: 37 }] },
  ];
  let at = Date.parse("2025-09-01T03:00:00.123Z");
  for (const plan of plans) {
    for (let round = 0; round < 3; round++) {
      const user = await caller(plan);
      at += 3_723_411;
      await gateway.clock(new Date(at).toISOString());
      assert.equal((await user.chat()).status, 200);
      const refused = await user.chat();
      assert.equal(refused.status, 429);
      const wait = refused.headers.get("retry-after");
      assert.match(wait, /^[1-9][0-9]*$/);
      assert.equal(/;t=(\d+)/.exec(refused.headers.get("ratelimit"))[1], wait);
      at = gateway.now() + Number(wait) * 1000;
      await gateway.clock(new Date(at).toISOString());
      assert.equal((await user.chat()).status, 200, JSON.stringify(plan));
    }
  }
});

test("a production build refuses a shifted clock", async () => {
  const shifted = await startGateway({ upstream, vars: { ENVIRONMENT: "production", CLOCK_OFFSET_MS: String(40 * 86_400_000) } });
  try {
    const user = await newCaller(shifted, { daily_limit: 1 });
    const before = Date.now();
    const answer = await user.chat();
    const reset = Number(answer.headers.get("x-ratelimit-reset")) * 1000;
    assert.ok(reset > before && reset <= before + 86_400_000, "the day is today's");
    const ready = await shifted.call("/readyz");
    assert.equal(ready.status, 503);
    assert.match(ready.text, /CLOCK_OFFSET_MS/);
  } finally {
    await shifted.stop();
  }
});
