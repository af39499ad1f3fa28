// The first thing that works end to end: a caller is held to their plan.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream });
  await gateway.keepToDocument();
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const chat = (key, json = hello, rest = {}) => gateway.call("/v1/chat/completions", { key, json, ...rest });
const policy = async (key, name) => {
  const answer = await gateway.call("/api/quota", { key });
  assert.equal(answer.status, 200, answer.text);
  return answer.body.policies.find((p) => p.name === name);
};

/** A user on a plan of their own with `n` calls a day and nothing else that limits. */
async function caller(plan = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, daily_limit: 10, monthly_token_limit: 100000, max_tokens_per_request: 1000, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
  return { user_id, plan_id, key: await gateway.createKey(user_id) };
}

test("the 11th call of a free user is a 429 that says everything", async () => {
  const user = await gateway.createUser({ plan_id: "free" });
  const key = await gateway.createKey(user);
  for (let n = 1; n <= 10; n++) {
    const answer = await chat(key);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.headers.get("x-ratelimit-limit"), "10");
    assert.equal(answer.headers.get("x-ratelimit-remaining"), String(10 - n));
    assert.equal(answer.headers.get("x-sluice-decision"), "allowed");
  }
  const refused = await chat(key);
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get("content-type"), "application/json");
  const { error, resetAt, request_id } = refused.body;
  assert.equal(error.code, "insufficient_quota");
  assert.equal(error.type, "insufficient_quota");
  assert.equal(error.policy, "daily");
  assert.equal(error.limit, 10);
  assert.equal(error.remaining, 0);
  assert.match(error.reset_at, /^\d{4}-\d\d-\d\dT00:00:00Z$/);
  assert.equal(resetAt, error.reset_at);
  assert.equal(request_id, refused.headers.get("x-request-id"));
  assert.equal(refused.headers.get("request-id"), request_id);
  assert.equal(refused.headers.get("cache-control"), "no-store");
  assert.equal(refused.headers.get("x-should-retry"), "false");
  assert.equal(refused.headers.get("x-sluice-decision"), "refused");
  assert.equal(refused.headers.get("x-ratelimit-remaining"), "0");
  assert.match(refused.headers.get("retry-after"), /^[1-9]\d*$/);
  const t = /"daily";r=0;t=(\d+)/.exec(refused.headers.get("ratelimit"));
  assert.equal(t[1], refused.headers.get("retry-after"));
});

test("60 parallel calls with 10 left are exactly 10 answers, over two keys too", async () => {
  for (const keys of [1, 2]) {
    const { user_id, key } = await caller();
    const all = [key, ...(keys === 2 ? [await gateway.createKey(user_id)] : [])];
    upstream.reset();
    const answers = await Promise.all(Array.from({ length: 60 }, (_, i) => chat(all[i % all.length])));
    const count = (status) => answers.filter((a) => a.status === status).length;
    assert.deepEqual([count(200), count(429)], [10, 50]);
    assert.equal(upstream.requests.length, 10);
    const daily = await policy(key, "daily");
    assert.deepEqual([daily.used, daily.remaining], [10, 0]);
  }
});

test("quota shows the truth, spends nothing and works when exhausted", async () => {
  const { key } = await caller({ daily_limit: 1 });
  assert.equal((await policy(key, "daily")).used, 0);
  assert.equal((await chat(key)).status, 200);
  for (let i = 0; i < 3; i++) assert.deepEqual(await policy(key, "daily").then((p) => [p.used, p.remaining, p.limit]), [1, 0, 1]);
  assert.equal((await chat(key)).status, 429);
});

test("usage reaches the ledger as absolute totals", async () => {
  const { user_id, key } = await caller();
  upstream.always({ usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
  for (let i = 0; i < 3; i++) await chat(key);
  await eventually(async () => {
    const row = await gateway.quotaRow(user_id);
    assert.deepEqual([row?.used_today, row?.tokens_used_this_month], [3, 36]);
    const [day] = await gateway.usageRows(user_id);
    assert.deepEqual([day.calls, day.prompt_tokens, day.completion_tokens], [3, 21, 15]);
  });
  const usage = await gateway.call("/api/usage", { key });
  assert.equal(usage.body.data[0].total_tokens, 36);
});

test("a ledger that fails, or lies about a commit, loses and doubles nothing", async () => {
  for (const mode of ["error", "commit-then-error"]) {
    const { user_id, key } = await caller();
    await chat(key);
    await gateway.fault({ binding: "DB", mode, match: "user_quotas", times: 3 });
    upstream.always({ usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
    for (let i = 0; i < 4; i++) assert.equal((await chat(key)).status, 200);
    await eventually(async () => {
      const row = await gateway.quotaRow(user_id);
      assert.equal(row?.used_today, 5);
      assert.deepEqual((await gateway.usageRows(user_id)).map((d) => d.calls), [5]);
    }, 20_000);
    await gateway.noFaults();
  }
});

test("an account with empty storage starts from the ledger", async () => {
  const { user_id, key } = await caller();
  for (let i = 0; i < 4; i++) await chat(key);
  await eventually(async () => assert.equal((await gateway.quotaRow(user_id))?.used_today, 4));
  await gateway.account(user_id).wipe();
  assert.equal((await policy(key, "daily")).used, 4);
  assert.equal((await chat(key)).status, 200);
  await eventually(async () => assert.equal((await gateway.quotaRow(user_id))?.used_today, 5));
});

test("unknown, revoked, expired and 'could not tell' are told apart", async () => {
  const { user_id, key } = await caller();
  const unknown = "slc_live_7Hq2mZ0dLxW4tYb9RkCs1NvE8gJp3U3YCseo";
  const cases = [
    [unknown, /unknown/],
    [await gateway.createKey(user_id, { revoked_at: 1 }), /revoked/],
    [await gateway.createKey(user_id, { expires_at: 1 }), /expired/],
    [`${key.slice(0, -1)}${key.endsWith("a") ? "b" : "a"}`, /malformed/],
  ];
  for (const [shown, words] of cases) {
    const answer = await chat(shown);
    assert.equal(answer.status, 401);
    assert.match(answer.body.error.message, words);
    assert.equal(answer.body.error.code, "invalid_api_key");
    assert.ok(!answer.text.includes(shown));
    assert.equal(answer.headers.get("ratelimit"), null);
    assert.match(answer.headers.get("www-authenticate"), /^Bearer realm="sluice"/);
  }
  const none = await gateway.call("/v1/chat/completions", { json: hello });
  assert.equal(none.status, 401);
  assert.equal(none.headers.get("www-authenticate"), 'Bearer realm="sluice"');
  await gateway.faults([{ binding: "DB", mode: "error" }, { binding: "CACHE", mode: "error" }]);
  const unsure = await chat(await gateway.createKey(user_id).catch(() => unknown));
  await gateway.noFaults();
  assert.equal(unsure.status, 503);
  assert.match(unsure.headers.get("retry-after"), /^[1-9]\d*$/);
});

test("a key in the query is no credential, and is repeated nowhere", async () => {
  const { key } = await caller();
  for (const name of ["api_key", "key", "access_token"]) {
    for (const answer of [await gateway.call(`/v1/chat/completions?${name}=${key}`, { json: hello }), await gateway.call(`/api/quota?${name}=${key}`)]) {
      assert.equal(answer.status, 401, `${name}: ${answer.text}`);
      assert.equal(answer.headers.get("ratelimit"), null);
      assert.ok(!answer.text.includes(key));
      await eventually(() => assert.ok(gateway.logs().includes(answer.headers.get("x-request-id"))));
    }
  }
  assert.equal((await policy(key, "daily")).used, 0);
  assert.ok(!gateway.logs().includes(key));
});

test("the user that a body names is never the one whose limits apply", async () => {
  const [one, other] = [await caller(), await caller()];
  const bodies = [
    ["/v1/chat/completions", { ...hello, user: other.user_id }],
    ["/v1/chat/completions", { ...hello, user: other.user_id, stream: true }],
    ["/v1/responses", { model: "m-small", input: "hi", user: other.user_id }],
    ["/v1/embeddings", { model: "m-small", input: "hi", user: other.user_id }],
    ["/v1/messages", { ...hello, max_tokens: 5, metadata: { user_id: other.user_id } }],
  ];
  for (const [path, json] of bodies) {
    const answer = await gateway.call(path, { key: one.key, json });
    assert.equal(answer.status, 200, `${path}: ${answer.text}`);
  }
  assert.deepEqual([(await policy(one.key, "daily")).used, (await policy(other.key, "daily")).used], [bodies.length, 0]);
  assert.equal((await policy(other.key, "monthly-tokens")).used, 0);
});

test("a bad checksum is turned away before any storage is read", async () => {
  await gateway.resetCalls();
  assert.equal((await chat(`slc_live_${"0".repeat(36)}`)).status, 401);
  const calls = await gateway.calls();
  assert.deepEqual(Object.keys(calls).filter((name) => !name.startsWith("NOTHING")), []);
});

test("bad input is answered by the error table, counted by no quota and never forwarded", async () => {
  const { key } = await caller();
  upstream.reset();
  const raw = (body, headers = {}) => gateway.call("/v1/chat/completions", { key, body, method: "POST", headers });
  const big = JSON.stringify({ ...hello, messages: [{ role: "user", content: "x".repeat(1 << 20) }] });
  const cases = [
    [await raw("{"), 400],
    [await raw('{"model":"m","model":"m","messages":[]}'), 400],
    [await raw('{"model":1,"messages":[]}'), 400],
    [await raw("[]"), 400],
    [await raw(""), 400],
    [await raw(big), 413],
    [await gateway.call("/v1/nothing", { key, json: hello }), 404],
    [await gateway.call("/v1/chat/completions", { key }), 405],
  ];
  for (const [answer, status] of cases) {
    assert.equal(answer.status, status, answer.text);
    assert.ok(answer.body.error.message.length > 0);
    assert.match(answer.headers.get("content-type"), /^application\/json/);
    assert.ok(answer.headers.get("ratelimit"), "limits are told on every authenticated answer");
  }
  assert.equal(upstream.requests.length, 0);
  assert.equal((await policy(key, "daily")).used, 0);
  const stranger = await gateway.call("/v1/nothing", { json: hello });
  assert.equal(stranger.status, 404);
});

test("another spelling of a route is nobody's: it counts against short limits, and nothing is sent on", async () => {
  const { key } = await caller({ rate: { capacity: 100, refill_per_minute: 0 } });
  const spellings = [
    "//v1/chat/completions", "/v1//chat/completions", "/v1/chat/completions/", "/V1/chat/completions", "/v1/Chat/Completions", "/v1/ch%61t/completions",
    "/v1/chat%2fcompletions", "/v1/chat/completions;x", "/v1/chat/completions%20", "/v1/./x/%2e%2e/chat/completions/.", "/api/AI/query", "/api/ai/query/",
  ];
  for (const path of spellings) {
    const answer = await gateway.call(path, { key, json: hello });
    assert.ok([400, 404].includes(answer.status), `${path}: ${answer.status} ${answer.text}`);
  }
  assert.equal(upstream.requests.length, 0);
  assert.deepEqual([(await policy(key, "rate")).used, (await policy(key, "daily")).used], [spellings.length, 0]);
});

test("the simple door answers a chat completion, from the same quota", async () => {
  const { key } = await caller({ daily_limit: 2 });
  const answer = await gateway.call("/api/ai/query", { key, json: { prompt: "hi" } });
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.body.object, "chat.completion");
  assert.equal((await gateway.call("/api/ai/query", { key, json: { messages: hello.messages, max_tokens: 5 } })).status, 200);
  assert.equal((await gateway.call("/api/ai/query", { key, json: { prompt: "hi" } })).status, 429);
  assert.equal((await gateway.call("/api/ai/query", { key, json: { promt: "hi" } })).status, 400);
});

test("an upstream failure is given back", async () => {
  const { key } = await caller();
  upstream.next({ status: 500 });
  const answer = await chat(key);
  assert.equal(answer.status, 502);
  assert.equal(answer.headers.get("x-ratelimit-remaining"), "10");
  assert.deepEqual(await policy(key, "daily").then((p) => p.used), 0);
  assert.deepEqual(await policy(key, "monthly-tokens").then((p) => [p.used, p.reserved]), [0, 0]);
});

test("OPTIONS is free and comes before authentication", async () => {
  const answer = await gateway.call("/v1/chat/completions", { method: "OPTIONS", headers: { origin: "https://app.example" } });
  assert.equal(answer.status, 204);
});
