// max_tokens in all its spellings: what was checked is what is sent.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { callersOf } from "./harness/callers.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const CAP = 200;
const CHAT = "/v1/chat/completions";
const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };

let gateway, upstream, caller, strict, clamped;
before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream });
  await gateway.keepToDocument();
  caller = callersOf(gateway);
  strict = await caller({ max_tokens_per_request: CAP, max_tokens_mode: "reject" });
  clamped = await caller({ max_tokens_per_request: CAP, max_tokens_mode: "clamp" });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

/** The call's status and what its provider was sent of it. */
async function sent(user, json, path = CHAT) {
  upstream.reset();
  const answer = await user.post(path, json);
  return { status: answer.status, error: answer.body?.error, body: upstream.last?.json };
}

/** A body with a number that JSON.stringify would write otherwise. */
async function raw(user, number) {
  upstream.reset();
  const body = `{"model":"m-small","messages":[{"role":"user","content":"hi"}],"max_tokens":${number}}`;
  const answer = await user.gateway.call(CHAT, { key: user.key, body, method: "POST" });
  return { status: answer.status, body: upstream.last?.json };
}

test("absent and null mean the plan's cap, which is sent", async () => {
  for (const fields of [{}, { max_tokens: null }, { max_completion_tokens: null }]) {
    const { status, body } = await sent(strict, { ...hello, ...fields });
    assert.deepEqual([status, body.max_tokens], [200, CAP]);
  }
});

test("the cap's name is the one the API and the model take", async () => {
  const field = async (path, json) => Object.entries((await sent(strict, json, path)).body).find(([, value]) => value === CAP)?.[0];
  assert.equal(await field(CHAT, { ...hello, model: "o3-mini" }), "max_completion_tokens");
  assert.equal(await field("/v1/responses", { model: "m-small", input: "hi" }), "max_output_tokens");
  assert.equal(await field("/v1/messages", hello), "max_tokens");
  assert.equal(await field("/v1/completions", { model: "m-small", prompt: "hi" }), "max_tokens");
  assert.equal(await field("/v1/embeddings", { model: "m-small", input: "hi" }), undefined);
});

test("up to the cap passes as it is; above it is a 400 that names the field, or clamped", async () => {
  for (const max_tokens of [1, 199, CAP]) {
    const { status, body } = await sent(strict, { ...hello, max_tokens });
    assert.deepEqual([status, body.max_tokens], [200, max_tokens]);
  }
  const over = [{ max_tokens: CAP + 1 }, { max_tokens: 1e9 }, { max_completion_tokens: 500 }, { max_tokens: 100, max_completion_tokens: 500 }, { max_output_tokens: 500 }];
  for (const fields of over) {
    const refused = await sent(strict, { ...hello, ...fields });
    assert.deepEqual([refused.status, refused.error.code, refused.error.param], [400, "max_tokens_exceeded", "max_tokens"], JSON.stringify(fields));
    assert.equal(refused.body, undefined);
    const { status, body } = await sent(clamped, { ...hello, ...fields });
    assert.equal(status, 200);
    for (const [name, own] of Object.entries(fields)) assert.equal(body[name], Math.min(own, CAP), name);
  }
});

test("what is no integer of at least 1 is a 400, and nothing is sent", async () => {
  const bad = [0, -1, 1.5, "150", "", true, false, [1], {}, 2 ** 60];
  for (const user of [strict, clamped]) {
    for (const field of ["max_tokens", "max_completion_tokens", "max_output_tokens"]) {
      for (const value of bad) {
        const { status, error, body } = await sent(user, { ...hello, [field]: value });
        assert.deepEqual([status, error.param, body], [400, field, undefined], `${field}: ${JSON.stringify(value)}`);
      }
    }
    for (const text of ["1e2", "100.0", "1E9", "-0", "99999999999999999999"]) {
      assert.deepEqual(await raw(user, text), { status: 400, body: undefined }, text);
    }
    for (const text of ["NaN", "Infinity", "0x10", "+5", "1_000"]) {
      assert.deepEqual(await raw(user, text), { status: 400, body: undefined }, text);
    }
  }
  assert.equal((await strict.policy("monthly-tokens")).reserved, 0);
});

describe("n", () => {
  test("multiplies what is checked and reserved", async () => {
    const over = await sent(strict, { ...hello, n: 10, max_tokens: CAP });
    assert.deepEqual([over.status, over.error.code, over.body], [400, "max_tokens_exceeded", undefined]);
    const { body } = await sent(clamped, { ...hello, n: 10, max_tokens: CAP });
    assert.deepEqual([body.n, body.max_tokens], [10, CAP / 10]);
    const user = await caller({ monthly_token_limit: 1_000 });
    upstream.always({ delay: 700 });
    const running = user.post(CHAT, { ...hello, n: 5, max_tokens: 100 });
    await upstream.until((u) => u.count() > 1);
    const { reserved } = await user.policy("monthly-tokens");
    assert.ok(reserved >= 500 && reserved <= 520, String(reserved));
    await running;
  });

  test("and best_of, and the prompts of a list, in whatever type", async () => {
    for (const n of [0, -1, 1.5, "2", true, [], 129, 1e9]) assert.equal((await sent(strict, { ...hello, n })).status, 400, `n ${JSON.stringify(n)}`);
    const many = (fields) => sent(strict, { model: "m-small", prompt: "hi", max_tokens: 100, ...fields }, "/v1/completions").then(({ status }) => status);
    assert.equal(await many({ best_of: 3 }), 400);
    assert.equal(await many({ prompt: ["a", "b", "c"] }), 400);
    assert.equal(await many({ prompt: ["a", "b"] }), 200);
    assert.equal(await many({ prompt: [1, 2, 3, 4] }), 200);
    assert.equal((await sent(strict, { ...hello, n: null })).status, 200);
  });
});

test("less left than asked for is lowered, so that the month can't be passed", async () => {
  const user = await caller({ monthly_token_limit: 300 });
  const { status, body } = await sent(user, { ...hello, max_tokens: 5_000 });
  assert.equal(status, 200);
  assert.ok(body.max_tokens < 300 && body.max_tokens > 250, String(body.max_tokens));
  await user.settled();
  const absent = await sent(user, hello);
  assert.ok(absent.body.max_tokens < 290, String(absent.body.max_tokens));
});

test("a plan without a cap and without tokens sends what was asked for, and nothing else", async () => {
  const user = await caller({ monthly_token_limit: null });
  assert.equal("max_tokens" in (await sent(user, hello)).body, false);
  assert.equal((await sent(user, { ...hello, max_tokens: 123_456 })).body.max_tokens, 123_456);
});

test("a cap of 0 lets no answer be asked for", async () => {
  const user = await caller({ max_tokens_per_request: 0 });
  for (const fields of [{}, { max_tokens: 1 }]) assert.deepEqual((({ status, body }) => [status, body])(await sent(user, { ...hello, ...fields })), [400, undefined]);
  assert.equal((await sent(user, { model: "m-small", input: "hi" }, "/v1/embeddings")).status, 200);
});

test("the simple door is held to the same cap", async () => {
  assert.equal((await sent(strict, { prompt: "hi", model: "m-small", max_tokens: CAP + 1 }, "/api/ai/query")).status, 400);
  assert.equal((await sent(strict, { prompt: "hi", model: "m-small" }, "/api/ai/query")).body.max_tokens, CAP);
});
