// Models: one name is resolved once, checked and sent. Each kind of provider, and its failures in our words.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { callersOf, dataOf } from "./harness/callers.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const CHAT = "/v1/chat/completions";
const messages = [{ role: "user", content: "hi" }];

let gateway, upstream, other, ai, caller, anyone;
before(async () => {
  [upstream, other, ai] = await Promise.all([startUpstream(), startUpstream(), startUpstream()]);
  gateway = await startGateway({ upstream, ai, secrets: { OTHER_KEY: "other-secret", ANTHROPIC_KEY: "anthropic-secret" } });
  await gateway.keepToDocument();
  caller = callersOf(gateway);
  anyone = await caller();
  const rows = {
    "far": { upstream: "openai", base_url: `${other.url}/v1`, secret_name: "OTHER_KEY", upstream_model: "far-2026", aliases: ["far-latest", "f"] },
    "open": { upstream: "openai", base_url: other.url },
    "near": { upstream: "openai", upstream_model: "near-2026" },
    "claude": { upstream: "anthropic", base_url: other.url, secret_name: "ANTHROPIC_KEY" },
    "llama": { upstream: "workers-ai", upstream_model: "@cf/meta/llama" },
    "mock": { upstream: "mock" },
    "keyless": { upstream: "openai", base_url: other.url, secret_name: "NOT_SET" },
    "m-big": { upstream: "openai", aliases: ["a", "m-small-but-big"] },
  };
  for (const [model, row] of Object.entries(rows)) {
    const made = await gateway.admin(`/admin/models/${model}`, { method: "PUT", json: row });
    assert.equal(made.status, 201, made.text);
  }
});
after(async () => {
  await gateway.stop();
  await Promise.all([upstream, other, ai].map((server) => server.stop()));
});
beforeEach(() => [upstream, other, ai].forEach((server) => server.reset()));

const ask = (model, rest = {}, user = anyone) => user.post(CHAT, { model, messages, ...rest });

describe("a row says where its model's calls go", () => {
  test("its own provider, key and name; its aliases are the same model", async () => {
    for (const name of ["far", "far-latest", "f"]) {
      assert.equal((await ask(name)).status, 200);
      assert.equal(other.last.path, CHAT);
      assert.equal(other.last.json.model, "far-2026");
      assert.equal(other.last.headers.authorization, "Bearer other-secret");
    }
    assert.equal(upstream.count(), 0);
  });

  test("the default provider's key goes to the default provider only", async () => {
    await ask("open");
    assert.equal(other.last.headers.authorization, undefined);
    await ask("near");
    assert.deepEqual([upstream.last.json.model, upstream.last.headers.authorization], ["near-2026", "Bearer upstream-secret"]);
    await ask("a-name-without-a-row");
    assert.equal(upstream.last.json.model, "a-name-without-a-row");
  });

  test("Anthropic gets its own kind of key and a version, the caller's if there is one", async () => {
    const json = { model: "claude", messages, max_tokens: 5 };
    assert.equal((await anyone.post("/v1/messages", json)).status, 200);
    const { headers, path } = other.last;
    assert.deepEqual([path, headers["x-api-key"], headers.authorization, headers["anthropic-version"]], ["/v1/messages", "anthropic-secret", undefined, "2023-06-01"]);
    await anyone.post("/v1/messages?beta=true", json, { headers: { "anthropic-version": "2026-10-21", "anthropic-beta": "b1" } });
    assert.deepEqual([other.last.headers["anthropic-version"], other.last.headers["anthropic-beta"]], ["2026-10-21", "b1"]);
  });

  test("a secret that is not set is our fault, and nothing is sent", async () => {
    const answer = await ask("keyless");
    assert.equal(answer.status, 500);
    assert.equal(other.count(), 0);
    assert.doesNotMatch(answer.text, /NOT_SET/);
  });

  test("the mock answers without a provider, and the same every time", async () => {
    const [one, two] = [await ask("mock"), await ask("mock")];
    assert.equal(one.text, two.text);
    assert.match(one.body.choices[0].message.content, /hi/);
    assert.equal(upstream.count() + other.count(), 0);
  });
});

describe("Workers AI", () => {
  const at = "/ai/run/@cf/meta/llama";

  test("a whole answer, metered, with all it was told", async () => {
    const user = await caller({ max_tokens_per_request: 100 });
    ai.on(at, { body: { response: "Hello", usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 } } });
    const answer = await user.post(CHAT, { model: "llama", messages, max_completion_tokens: 50, temperature: 0.5, user: "u" });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(ai.last.json, { messages, temperature: 0.5, max_tokens: 50 });
    assert.equal(answer.body.object, "chat.completion");
    assert.deepEqual(answer.body.choices[0].message, { role: "assistant", content: "Hello", refusal: null });
    await user.billed(1, 7, 3);
  });

  test("a stream, in OpenAI's chunks, usage for who asked", async () => {
    for (const asked of [true, false]) {
      const user = await caller();
      const events = [{ response: "He" }, { response: "llo" }, { response: "", usage: { prompt_tokens: 7, completion_tokens: 2 } }, "data: [DONE]\n\n"];
      ai.on(at, { events, chunkDelay: 5 });
      const answer = await user.post(CHAT, { model: "llama", messages, stream: true, ...(asked && { stream_options: { include_usage: true } }) });
      assert.match(answer.headers.get("content-type"), /^text\/event-stream/);
      const data = dataOf(answer.text);
      const words = data.map((chunk) => chunk.choices?.[0]?.delta?.content ?? "").join("");
      assert.deepEqual([words, data.at(-1)], ["Hello", "[DONE]"]);
      assert.equal(data.filter((chunk) => chunk.usage).length, asked ? 1 : 0);
      assert.equal(ai.last.json.stream, true);
      await user.billed(1, 7, 2);
    }
  });

  test("a stream that breaks off, or writes past the reservation", async () => {
    const [broken, long] = [await caller(), await caller({ monthly_token_limit: 200 })];
    const events = Array.from({ length: 900 }, () => ({ response: " and" }));
    ai.on(at, { events: events.slice(0, 30) });
    const cut = await broken.post(CHAT, { model: "llama", messages, stream: true });
    assert.equal(dataOf(cut.text).at(-1).error.code, "upstream_incomplete");
    assert.equal((await broken.ledger(1))[1], 30);
    ai.on(at, { events, chunkDelay: 1 });
    const length = await long.post(CHAT, { model: "llama", messages, stream: true });
    assert.equal(dataOf(length.text).at(-2).choices[0].finish_reason, "length");
    assert.ok((await long.settled()).used <= 201);
  });

  test("embeddings, completions, and what it can't do", async () => {
    ai.on(at, { body: { shape: [1, 2], data: [[0.5, -0.25]] } });
    const embedding = await anyone.post("/v1/embeddings", { model: "llama", input: ["hi"], encoding_format: "base64" });
    assert.deepEqual(ai.last.json, { text: ["hi"] });
    const bytes = Buffer.from(embedding.body.data[0].embedding, "base64");
    assert.deepEqual([bytes.readFloatLE(0), bytes.readFloatLE(4)], [0.5, -0.25]);
    ai.on(at, { body: { response: "there" } });
    const completion = await anyone.post("/v1/completions", { model: "llama", prompt: "hi" });
    assert.equal(completion.body.choices[0].text, "there");
    const before = ai.count();
    assert.equal((await ask("llama", { n: 2 })).status, 400);
    assert.equal((await anyone.post("/v1/messages", { model: "llama", messages, max_tokens: 5 })).status, 400);
    assert.equal(ai.count(), before);
  });

  test("its errors, given back", async () => {
    const user = await caller();
    const errors = { "5007: No such model": 404, "3040: Capacity temporarily exceeded": 503, "5006: Error: oneOf at '/' not met": 400, "odd": 502 };
    for (const [message, status] of Object.entries(errors)) {
      ai.on(at, { status: 500, body: { error: { message } } });
      assert.equal((await ask("llama", {}, user)).status, status, message);
    }
    assert.equal((await user.settled()).used, 0);
  });
});

test("the model checked is the model sent, by whatever road another one is named", async () => {
  const user = await caller({ allowed_models: ["m-small", "wild-s*"] });
  const raw = (body) => gateway.call(CHAT, { key: user.key, body, method: "POST" });
  const text = JSON.stringify(messages);
  const refused = {
    "m-big": await ask("m-big", {}, user),
    "an alias of m-big": await ask("a", {}, user),
    "an alias that looks allowed": await ask("m-small-but-big", {}, user),
    "padded": await ask(" m-small", {}, user),
    "padded after": await ask("m-small ", {}, user),
    "in capitals": await ask("M-SMALL", {}, user),
    "with a NUL": await ask("m-big\u0000", {}, user),
    "with an invisible character": await ask("m-small\u200b", {}, user),
    "with a prefix": await ask("openai/m-big", {}, user),
    "past a wildcard": await ask("wild-big", {}, user),
    "a list": await ask("m-small", { models: ["m-big"] }, user),
    "a fallback": await ask("m-small", { fallbacks: ["m-big"] }, user),
    "an array": await ask(["m-small"], {}, user),
    "none": await user.post(CHAT, { messages }),
    "twice": await raw(`{"model":"m-small","model":"m-big","messages":${text}}`),
    "twice, the other way": await raw(`{"model":"m-big","model":"m-small","messages":${text}}`),
    "twice, escaped": await raw(`{"model":"m-small","mod\\u0065l":"m-big","messages":${text}}`),
  };
  for (const [name, answer] of Object.entries(refused)) assert.ok([400, 403].includes(answer.status), `${name}: ${answer.status} ${answer.text}`);
  assert.equal(upstream.count(), 0);
  const passed = [
    await user.post(`${CHAT}?model=m-big`, { model: "m-small", messages }),
    await user.post(CHAT, { model: "m-small", messages }, { headers: { "x-model": "m-big" } }),
    await user.post(CHAT, { model: "wild-small", messages }),
    await raw(`{"messages":${text},"model":"m\\u002dsmall"}`),
  ];
  for (const answer of passed) assert.equal(answer.status, 200, answer.text);
  assert.deepEqual(upstream.requests.map((request) => [request.json.model, request.query]), [["m-small", ""], ["m-small", ""], ["wild-small", ""], ["m-small", ""]]);
  const none = await caller({ allowed_models: [] });
  assert.equal((await ask("m-small", {}, none)).body.error.code, "model_not_allowed");
});

test("the list of models is what the plan allows, for both families of SDKs", async () => {
  const user = await caller({ allowed_models: ["far", "near", "exact"] });
  const { body } = await gateway.call("/v1/models", { key: user.key });
  assert.deepEqual(body.data.map((model) => model.id), ["exact", "far", "near"]);
  assert.deepEqual([body.object, body.has_more, body.first_id, body.last_id], ["list", false, "exact", "near"]);
  assert.ok(body.data.every((model) => model.object === "model" && model.type === "model" && model.created && model.display_name));
  assert.equal((await gateway.call("/v1/models/far", { key: user.key })).body.id, "far");
  assert.equal((await gateway.call("/v1/models/m-big", { key: user.key })).body.error.code, "model_not_found");
  assert.equal((await gateway.call("/v1/models")).status, 401);
  assert.equal((await gateway.call("/v1/models/far-latest", { key: user.key })).body.id, "far");
  assert.equal((await user.policy("daily")).used, 0);
});

describe("with a provider and no row", () => {
  let alone, provider, user;
  before(async () => {
    provider = await startUpstream();
    provider.on("/v1/models", { body: { object: "list", data: [{ id: "gpt-z" }, { id: "gpt-a" }, { id: 7 }] } });
    alone = await startGateway({ upstream: provider, secrets: { UPSTREAM_API_KEY: "provider-secret" } });
    user = await callersOf(alone)();
  });
  after(async () => {
    await alone.stop();
    await provider.stop();
  });
  const names = async () => (await alone.call("/v1/models", { key: user.key })).body.data.map(({ id }) => id);

  test("the list is the provider's, asked for with our secret and not for every call", async () => {
    assert.deepEqual(await names(), ["gpt-a", "gpt-z"]);
    assert.deepEqual(await names(), ["gpt-a", "gpt-z"]);
    const asked = provider.requests.filter(({ path }) => path === "/v1/models");
    assert.deepEqual(asked.map(({ method, headers }) => [method, headers.authorization]), [["GET", "Bearer provider-secret"]]);
    assert.equal((await alone.call("/v1/models/gpt-a", { key: user.key })).body.id, "gpt-a");
    assert.equal((await alone.call("/v1/models/gpt-b", { key: user.key })).status, 404);
    const narrow = await callersOf(alone)({ allowed_models: ["gpt-z", "own"] });
    const { body } = await alone.call("/v1/models", { key: narrow.key });
    assert.deepEqual(body.data.map(({ id }) => id), ["gpt-z", "own"]);
  });

  test("a simple query that names no model gets one that its plan allows", async () => {
    const ask = async (caller) => {
      const answer = await caller.post("/api/ai/query", { prompt: "hi" });
      return answer.status === 200 ? provider.last.json.model : answer.body.error.param;
    };
    assert.equal(await ask(user), "gpt-z");
    assert.equal(await ask(await callersOf(alone)({ allowed_models: ["gpt-a"] })), "gpt-a");
    assert.equal(await ask(await callersOf(alone)({ allowed_models: ["own"] })), "own");
    assert.equal(await ask(await callersOf(alone)({ allowed_models: ["other-*"] })), "model");
  });

  test("a provider that does not say which it has keeps nobody waiting, and is left alone for a while", async () => {
    provider.on("/v1/models", { hang: true });
    await alone.clock(Date.now() + 6 * 60_000);
    const began = Date.now();
    assert.deepEqual([await names(), await names()], [[], []]);
    assert.ok(Date.now() - began < 4_000);
    assert.equal(provider.count("/v1/models"), 2);
  });
});

test("count_tokens costs nothing and asks nobody", async () => {
  const user = await caller({ daily_limit: 1 });
  const answer = await user.post("/v1/messages/count_tokens", { model: "claude", messages });
  assert.ok(answer.body.input_tokens > 0, answer.text);
  assert.equal(other.count(), 0);
  assert.equal((await user.policy("daily")).used, 0);
});

describe("a provider's failures in our words, never charged", () => {
  const table = [
    [{ status: 401 }, 502, "upstream_auth_failed", "false"],
    [{ status: 403 }, 502, "upstream_auth_failed", "false"],
    [{ status: 404 }, 404, "model_not_found", null],
    [{ status: 429, headers: { "retry-after": "7" } }, 503, "server_is_overloaded", null, /^([7-9]|10)$/],
    [{ status: 429, headers: { "retry-after": "86400", "x-should-retry": "true" } }, 503, "server_is_overloaded", null, /^10$/],
    [{ status: 500 }, 502, "upstream_error", null],
    [{ status: 503 }, 503, "server_is_overloaded", null, /^([1-9]|10)$/],
    [{ status: 529 }, 503, "server_is_overloaded", null, /^([1-9]|10)$/],
    [{ status: 504 }, 504, "upstream_timeout", null],
    [{ status: 400, body: { error: { message: "bad temperature", param: "temperature" } } }, 400, "upstream_rejected", null],
    [{ status: 418 }, 502, "upstream_error", null],
  ];
  for (const [behaviour, status, code, shouldRetry, retryAfter] of table) {
    for (const stream of [false, true]) {
      test(`${behaviour.status}${stream ? " for a stream" : ""} is ${status} ${code}`, async () => {
        const user = await caller();
        upstream.next(behaviour);
        const answer = await ask("m-small", { stream }, user);
        assert.deepEqual([answer.status, answer.body.error.code], [status, code], answer.text);
        assert.equal(answer.headers.get("x-should-retry"), shouldRetry);
        if (retryAfter) assert.match(answer.headers.get("retry-after"), retryAfter);
        assert.ok(answer.body.error.message);
        assert.equal((await user.settled()).used, 0);
        assert.equal((await user.policy("daily")).used, 0);
      });
    }
  }

  test("in Anthropic's shape on its route", async () => {
    upstream.next({ status: 529 }, { status: 401 });
    const json = { model: "m-small", messages, max_tokens: 5 };
    const overloaded = await anyone.post("/v1/messages", json);
    assert.deepEqual([overloaded.status, overloaded.body.type, overloaded.body.error.type], [529, "error", "overloaded_error"], overloaded.text);
    const auth = await anyone.post("/v1/messages", json);
    assert.deepEqual([auth.status, auth.body.error.type], [502, "api_error"]);
  });

  test("a redirect is not followed", async () => {
    upstream.next({ redirect: `${other.url}/v1/chat/completions` });
    const answer = await ask("m-small");
    assert.deepEqual([answer.status, answer.headers.get("location")], [502, null]);
    assert.equal(other.count(), 0);
  });

  test("a provider that is not there", async () => {
    const made = await gateway.admin("/admin/models/gone", { method: "PUT", json: { upstream: "openai", base_url: "http://127.0.0.1:9" } });
    assert.equal(made.status, 201, made.text);
    assert.deepEqual((({ status, body }) => [status, body.error.code])(await ask("gone")), [502, "upstream_unreachable"]);
  });
});

test("no credential of the caller's goes up, nothing of the provider's own comes down", async () => {
  const mine = { "x-api-key": "", "openai-organization": "org-mine", cookie: "c=1", "x-forwarded-for": "1.2.3.4", "x-user-id": "root", prefer: "wait=1", "user-agent": "sdk/1", "x-stainless-lang": "js" };
  delete mine["x-api-key"];
  for (const stream of [false, true]) {
    upstream.next({
      headers: {
        "set-cookie": ["a=1", "b=2"], ratelimit: '"up";r=1;t=1', "ratelimit-policy": '"up";q=1', "x-ratelimit-remaining-tokens": "1", "anthropic-ratelimit-tokens-limit": "1",
        "retry-after": "99", "retry-after-ms": "99", "x-should-retry": "true", "openai-organization": "ours", "x-request-id": "up", "request-id": "up", server: "nginx", "cache-control": "public",
      },
    });
    const answer = await ask("m-small", { stream }, { post: (path, json) => anyone.post(path, json, { headers: mine }) });
    assert.equal(answer.status, 200);
    const up = upstream.last.headers;
    assert.equal(up.authorization, "Bearer upstream-secret");
    const sent = JSON.stringify([up, upstream.last.body]);
    for (const secret of [anyone.key, "org-mine", "c=1", "1.2.3.4"]) assert.ok(!sent.includes(secret), `${secret} went up: ${sent}`);
    assert.equal(up["x-user-id"], undefined);
    for (const gone of ["set-cookie", "retry-after", "retry-after-ms", "x-should-retry", "openai-organization", "anthropic-ratelimit-tokens-limit"]) {
      assert.equal(answer.headers.get(gone), null, gone);
    }
    assert.doesNotMatch(answer.headers.get("ratelimit"), /"up"/);
    assert.match(answer.headers.get("x-request-id"), /^req_/);
    assert.match(answer.headers.get("cache-control"), /no-store/);
    assert.notEqual(answer.headers.get("x-ratelimit-remaining-tokens"), "1");
  }
});
