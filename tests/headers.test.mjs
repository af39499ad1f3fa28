// Every authenticated answer says how its caller stands, whatever kind of answer it is.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { callersOf } from "./harness/callers.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const CHAT = "/v1/chat/completions";
const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
const always = ["x-request-id", "request-id", "cache-control"];
const limits = ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-sluice-decision"];
const openai = ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests", "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"];
const anthropic = openai.map((name) => name.replace(/x-ratelimit-(\w+)-(\w+)/, "anthropic-ratelimit-$2-$1"));

let gateway, upstream, caller;
before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream });
  await gateway.keepToDocument();
  caller = callersOf(gateway);
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

/** All that must hold of an answer's headers; `decision` is the gateway's word for it. */
function check(answer, decision, family = openai) {
  const has = (name) => assert.ok(answer.headers.get(name), `${name} is missing: ${answer.status} ${answer.text}`);
  [...always, ...limits, ...family].forEach(has);
  assert.equal(answer.headers.get("x-sluice-decision"), decision);
  for (const [name, value] of answer.headers) {
    if (/request-id/.test(name)) assert.match(value, /^req_[0-9A-Za-z]{20}$/, name);
    else if (/ratelimit|retry|sluice/.test(name)) assert.doesNotMatch(value, /null|none|undefined|NaN|Infinity|=-|^-/i, `${name}: ${value}`);
  }
  assert.match(answer.headers.get("x-ratelimit-remaining"), /^\d+$/);
  // It lay ahead when the answer was made; that was a moment ago.
  assert.ok(Number(answer.headers.get("x-ratelimit-reset")) > Date.now() / 1000 - 2, "the reset lies ahead");
  assert.equal(answer.headers.get("x-request-id"), answer.headers.get("request-id"));
  for (const [, t] of answer.headers.get("ratelimit").matchAll(/;t=(\d+)/g)) assert.ok(Number(t) >= 1);
  if (answer.status !== 429) return;
  assert.match(answer.headers.get("retry-after"), /^[1-9]\d*$/);
  const waits = [...answer.headers.get("ratelimit").matchAll(/;t=(\d+)/g)].map(([, t]) => Number(t));
  assert.equal(Number(answer.headers.get("retry-after")), Math.max(...waits));
  assert.equal(answer.headers.get("x-should-retry"), Math.max(...waits) >= 60 ? "false" : null);
}

describe("every kind of answer", () => {
  test("200 JSON and 200 stream, from the very first call", async () => {
    const user = await caller();
    check(await user.post(CHAT, hello), "allowed");
    const stream = await user.open(CHAT, { ...hello, stream: true });
    check({ status: stream.status, headers: stream.headers }, "allowed");
    assert.match(await stream.text(), /\[DONE\]/);
  });

  test("the other routes, Anthropic's with its own family", async () => {
    const user = await caller();
    check(await user.post("/v1/embeddings", { model: "m-small", input: "hi" }), "allowed");
    check(await user.post("/v1/responses", { model: "m-small", input: "hi" }), "allowed");
    check(await user.post("/v1/completions", { model: "m-small", prompt: "hi" }), "allowed");
    check(await gateway.call("/v1/models", { key: user.key }), "allowed");
    check(await user.post("/v1/messages", { ...hello, max_tokens: 5 }), "allowed", anthropic);
    check(await user.post("/v1/messages", { max_tokens: 5 }), "allowed", anthropic);
    check(await user.post("/v1/messages/count_tokens", hello), "allowed", anthropic);
    check(await user.post("/api/ai/query", { prompt: "hi", model: "m-small" }), "allowed", []);
  });

  test("400, 403, 404, 405 and 413", async () => {
    const user = await caller({ allowed_models: ["m-small"] });
    check(await gateway.call(CHAT, { key: user.key, method: "POST", body: "{" }), "allowed");
    const model = await user.post(CHAT, { ...hello, model: "m-big" });
    assert.equal(model.status, 403);
    check(model, "refused");
    check(await user.post("/v1/nothing", hello), "allowed");
    check(await gateway.call(CHAT, { key: user.key }), "allowed");
    const big = await user.post(CHAT, { ...hello, padding: "x".repeat(1 << 20) });
    assert.equal(big.status, 413);
    check(big, "allowed");
  });

  test("429 by each limit, streamed or not; plain JSON every time", async () => {
    const plans = {
      daily: { daily_limit: 1 },
      rate: { rate: { capacity: 1, refill_per_minute: 1 } },
      window: { window: { max_requests: 1, minutes: 5 } },
      "endpoint:chat": { endpoints: [{ name: "chat", max_requests: 1, per_seconds: 3600 }] },
      "tokens-per-minute": { tokens_per_minute: 60, max_tokens_per_request: 40 },
    };
    for (const [policy, plan] of Object.entries(plans)) {
      const user = await caller(plan);
      upstream.next({ usage: { prompt_tokens: 20, completion_tokens: 35 } });
      check(await user.post(CHAT, hello), "allowed");
      await user.settled();
      for (const stream of [false, true]) {
        const refused = await user.post(CHAT, { ...hello, stream });
        assert.equal(refused.status, 429, `${policy}: ${refused.text}`);
        check(refused, "refused");
        assert.equal(refused.body.error.policy, policy);
        assert.match(refused.headers.get("content-type"), /^application\/json/);
        assert.match(refused.headers.get("ratelimit"), new RegExp(`^"${policy}";`));
      }
    }
    const user = await caller({ monthly_token_limit: 30 });
    upstream.next({ usage: { prompt_tokens: 20, completion_tokens: 10 } });
    await user.post(CHAT, hello);
    await user.settled();
    const refused = await user.post("/v1/messages", { ...hello, max_tokens: 5 });
    check(refused, "refused", anthropic);
    assert.equal(refused.body.error.type, "rate_limit_error");
  });

  test("429 by concurrency", async () => {
    const user = await caller({ max_concurrent: 1 });
    upstream.reset();
    upstream.next({ delay: 1_000 });
    const running = user.post(CHAT, hello);
    await upstream.until((u) => u.count() === 1);
    const refused = await user.post(CHAT, hello);
    assert.deepEqual([refused.status, refused.body.error.policy], [429, "concurrency"], refused.text);
    check(refused, "refused");
    assert.ok(Number(refused.headers.get("retry-after")) <= 5);
    check(await running, "allowed");
  });

  test("502 upstream", async () => {
    const user = await caller();
    upstream.next({ status: 500 });
    const answer = await user.post(CHAT, hello);
    assert.equal(answer.status, 502);
    check(answer, "allowed");
    assert.match(answer.headers.get("ratelimit"), /"daily";r=10000;/, "what failed was given back");
  });

  test("200 degraded, 202 queued, 200 shadow", async () => {
    const over = { daily_limit: 1, over_quota: { strategy: "degrade", degrade_model: "m-cheap", degrade_daily_limit: 5 } };
    const degraded = await caller(over);
    await degraded.post(CHAT, hello);
    check(await degraded.post(CHAT, hello), "degraded");
    assert.equal(upstream.last.json.model, "m-cheap");
    const queued = await caller({ daily_limit: 1, over_quota: { strategy: "queue", queue_limit: 5 } });
    await queued.post(CHAT, hello);
    const later = await queued.post(CHAT, hello, { headers: { prefer: "respond-async" } });
    assert.equal(later.status, 202, later.text);
    check(later, "queued");
    const shadow = await caller({ daily_limit: 1, shadow: true });
    await shadow.post(CHAT, hello);
    const through = await shadow.post(CHAT, hello);
    assert.equal(through.status, 200);
    check(through, "shadow");
    assert.equal(through.headers.get("x-sluice-shadow"), "daily");
  });

  test("200 while the account store is out", async () => {
    const user = await caller();
    await user.post(CHAT, hello);
    await gateway.fault({ binding: "ACCOUNTS", mode: "error", match: user.user_id });
    const answer = await user.post(CHAT, hello);
    await gateway.noFaults();
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.headers.get("x-sluice-decision"), "open");
    assert.ok(answer.headers.get("x-ratelimit-limit"));
  });
});

test("an unlimited plan has no numbers to show, and shows none", async () => {
  const user = await caller({ daily_limit: null, monthly_token_limit: null });
  const answer = await user.post(CHAT, hello);
  assert.equal(answer.status, 200);
  for (const [name] of answer.headers) assert.doesNotMatch(name, /ratelimit/);
  assert.equal(answer.headers.get("x-sluice-decision"), "allowed");
});

test("a stranger's 401 tells of no limits", async () => {
  for (const path of [CHAT, "/v1/messages"]) {
    const answer = await gateway.call(path, { json: hello });
    assert.equal(answer.status, 401);
    always.forEach((name) => assert.ok(answer.headers.get(name), name));
    for (const [name] of answer.headers) assert.doesNotMatch(name, /ratelimit|sluice-decision/);
  }
});
