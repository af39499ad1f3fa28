// The official clients, unmodified: right results, right exceptions, no storms of retries and no long sleeps.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { after, before, beforeEach, describe, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateText, streamText } from "ai";
import OpenAI from "openai";
import { inRoot } from "../scripts/lib/paths.mjs";
import { callersOf } from "./harness/callers.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startTurnstile } from "./harness/turnstile.mjs";

const model = "mock-small";
const messages = [{ role: "user", content: "good morning" }];
const said = "You said: good morning";
/** A refusal for the rest of the day or month has to surface within this. */
const SOON = 5_000;
const python = process.env.SLUICE_PYTHON ?? inRoot(".venv", "bin", "python3");

let gateway, turnstile, caller, anyone, openai, anthropic;
before(async () => {
  gateway = await startGateway();
  turnstile = await startTurnstile(gateway.url);
  caller = callersOf(gateway);
  anyone = await caller();
  openai = openaiOf(anyone.key);
  anthropic = anthropicOf(anyone.key);
});
after(async () => {
  await turnstile.stop();
  await gateway.stop();
});
beforeEach(() => turnstile.reset());

const openaiOf = (apiKey) => new OpenAI({ apiKey, baseURL: `${turnstile.url}/v1` });
const anthropicOf = (apiKey) => new Anthropic({ apiKey, authToken: null, baseURL: turnstile.url });

/** A user whose one call of the day is made. */
async function exhausted() {
  const user = await caller({ daily_limit: 1 });
  assert.equal((await user.post("/v1/chat/completions", { model, messages })).status, 200);
  turnstile.reset();
  return user;
}

/** A user whose tokens of the month are used up about two weeks before it ends. */
async function exhaustedForWeeks() {
  const billing_day = ((new Date().getUTCDate() + 13) % 28) + 1;
  const user = await caller({ monthly_token_limit: 60, reset: { billing_day } });
  assert.equal((await user.post("/v1/chat/completions", { model, messages: [{ role: "user", content: "[[ignore_max_tokens]][[tokens:60]]" }] })).status, 200);
  assert.equal((await user.settled()).remaining, 0);
  turnstile.reset();
  return user;
}

/** Refused until the month ends, and told so at once: after one call, and without sleeping. */
function refusedForWeeks({ error, took }) {
  assert.ok(took < SOON && turnstile.passed.length === 1, `${took} ms, ${turnstile.passed.length} calls`);
  assert.ok(Number(error.headers.get("retry-after")) > 10 * 86_400, error.headers.get("retry-after"));
  assert.match(error.headers.get("ratelimit"), /^"monthly-tokens";r=0;/);
}

/** A user who has to wait two seconds for the next call. */
async function impatient() {
  const user = await caller({ rate: { capacity: 1, refill_per_minute: 30 } });
  await user.post("/v1/chat/completions", { model, messages });
  turnstile.reset();
  return user;
}

/** What a refused promise was refused with, and how long it took. */
async function failure(promise) {
  const began = Date.now();
  const error = await promise.then(() => assert.fail("it was not refused"), (error) => error);
  return { error, took: Date.now() - began };
}

describe("openai for Node", () => {
  test("chat, whole and streamed, with usage for who asks", async () => {
    const whole = await openai.chat.completions.create({ model, messages });
    assert.equal(whole.choices[0].message.content, said);
    assert.ok(whole.usage.total_tokens > 0);
    for (const include_usage of [false, true]) {
      let text = "";
      let usages = 0;
      for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true, stream_options: { include_usage } })) {
        text += chunk.choices[0]?.delta.content ?? "";
        usages += chunk.usage ? 1 : 0;
      }
      assert.deepEqual([text, usages], [said, include_usage ? 1 : 0]);
    }
    assert.equal(turnstile.passed.length, 3);
  });

  test("responses, embeddings, completions and models", async () => {
    assert.equal((await openai.responses.create({ model, input: "good morning" })).output_text, said);
    const stream = openai.responses.stream({ model, input: "good morning" });
    assert.equal((await stream.finalResponse()).output_text, said);
    const { data } = await openai.embeddings.create({ model, input: ["a", "b"] });
    assert.deepEqual(data.map(({ embedding }) => embedding.length), [32, 32]);
    assert.equal((await openai.completions.create({ model, prompt: "good morning" })).choices[0].text, said);
    const models = [];
    for await (const one of openai.models.list()) models.push(one.id);
    assert.ok(models.includes(model));
  });

  test("a used-up day is a RateLimitError at once, and one call", async () => {
    const user = await exhausted();
    for (const stream of [false, true]) {
      turnstile.reset();
      const { error, took } = await failure(openaiOf(user.key).chat.completions.create({ model, messages, stream }));
      assert.ok(error instanceof OpenAI.RateLimitError, String(error));
      assert.deepEqual([error.status, error.code, error.type], [429, "insufficient_quota", "insufficient_quota"]);
      assert.ok(took < SOON && turnstile.passed.length === 1, `${took} ms, ${turnstile.passed.length} calls`);
      assert.match(error.requestID, /^req_/);
    }
  });

  test("a used-up month is a RateLimitError at once, and one call", async () => {
    const user = await exhaustedForWeeks();
    for (const stream of [false, true]) {
      turnstile.reset();
      const refused = await failure(openaiOf(user.key).chat.completions.create({ model, messages, stream }));
      assert.ok(refused.error instanceof OpenAI.RateLimitError, String(refused.error));
      assert.deepEqual([refused.error.status, refused.error.code, refused.error.type], [429, "insufficient_quota", "insufficient_quota"]);
      refusedForWeeks(refused);
    }
  });

  test("a short limit is waited out by the SDK itself", async () => {
    const user = await impatient();
    const answer = await openaiOf(user.key).chat.completions.create({ model, messages });
    assert.equal(answer.choices[0].message.content, said);
    assert.ok(turnstile.passed.length <= 3, `${turnstile.passed.length} calls`);
  });

  test("every refusal is the exception of its kind", async () => {
    const user = await caller({ allowed_models: [model], max_tokens_per_request: 100 });
    const client = openaiOf(user.key);
    const create = (json) => failure(client.chat.completions.create({ model, messages, ...json })).then(({ error }) => error);
    assert.ok((await create({ model: "m-big" })) instanceof OpenAI.PermissionDeniedError);
    assert.ok((await create({ max_tokens: 101 })) instanceof OpenAI.BadRequestError);
    assert.ok((await failure(openaiOf("slc_live_nope").models.list())).error instanceof OpenAI.AuthenticationError);
    assert.ok((await failure(client.models.retrieve("m-big"))).error instanceof OpenAI.NotFoundError);
    assert.equal(turnstile.passed.length, 4);
  });

  test("a stream that breaks off throws", async () => {
    const stream = await openai.chat.completions.create({ model, messages: [{ role: "user", content: "[[stop_early]][[tokens:40]]" }], stream: true });
    await assert.rejects(async () => {
      for await (const _ of stream);
    }, { code: "upstream_incomplete" });
    assert.equal(turnstile.passed.length, 1);
  });
});

describe("@anthropic-ai/sdk", () => {
  const body = { model, messages, max_tokens: 100 };

  test("messages, whole and streamed, and a count", async () => {
    const whole = await anthropic.messages.create(body);
    assert.deepEqual([whole.content[0].text, whole.stop_reason], [said, "end_turn"]);
    const final = await anthropic.messages.stream(body).finalMessage();
    assert.equal(final.content[0].text, said);
    assert.deepEqual(final.usage.output_tokens, whole.usage.output_tokens);
    assert.ok((await anthropic.messages.countTokens({ model, messages })).input_tokens > 0);
    const models = await anthropic.models.list();
    assert.ok(models.data.some((one) => one.id === model));
  });

  test("a used-up day is a RateLimitError at once, and one call", async () => {
    const user = await exhausted();
    const { error, took } = await failure(anthropicOf(user.key).messages.create(body));
    assert.ok(error instanceof Anthropic.RateLimitError, String(error));
    assert.equal(error.error.error.type, "rate_limit_error");
    assert.ok(took < SOON && turnstile.passed.length === 1, `${took} ms, ${turnstile.passed.length} calls`);
  });

  test("a used-up month is a RateLimitError at once, and one call", async () => {
    const user = await exhaustedForWeeks();
    const refused = await failure(anthropicOf(user.key).messages.create(body));
    assert.ok(refused.error instanceof Anthropic.RateLimitError, String(refused.error));
    assert.deepEqual([refused.error.status, refused.error.error.error.type], [429, "rate_limit_error"]);
    refusedForWeeks(refused);
  });

  test("a short limit is waited out, and a bad key is an AuthenticationError", async () => {
    const user = await impatient();
    assert.equal((await anthropicOf(user.key).messages.create(body)).content[0].text, said);
    assert.ok((await failure(anthropicOf("slc_live_nope").messages.create(body))).error instanceof Anthropic.AuthenticationError);
  });
});

describe("Vercel's ai", () => {
  const providers = {
    "openai, responses": (apiKey) => createOpenAI({ apiKey, baseURL: `${turnstile.url}/v1` })(model),
    "openai, chat": (apiKey) => createOpenAI({ apiKey, baseURL: `${turnstile.url}/v1` }).chat(model),
    "openai-compatible": (apiKey) => createOpenAICompatible({ name: "sluice", apiKey, baseURL: `${turnstile.url}/v1`, includeUsage: true })(model),
  };
  for (const [name, provider] of Object.entries(providers)) {
    test(`${name}: text, whole and streamed, with usage`, async () => {
      const whole = await generateText({ model: provider(anyone.key), prompt: "good morning" });
      assert.equal(whole.text, said);
      const streamed = streamText({ model: provider(anyone.key), prompt: "good morning" });
      assert.equal(await streamed.text, said);
      assert.deepEqual([await streamed.finishReason, (await streamed.usage).outputTokens], ["stop", whole.usage.outputTokens]);
    });

    test(`${name}: a used-up day surfaces soon and after three calls at the most`, async () => {
      const user = await exhausted();
      const { error, took } = await failure(generateText({ model: provider(user.key), prompt: "hi", maxRetries: 0 }));
      assert.equal(error.statusCode, 429, String(error));
      assert.ok(took < SOON && turnstile.passed.length === 1);
      turnstile.reset();
      await failure(generateText({ model: provider(user.key), prompt: "hi" }));
      assert.ok(turnstile.passed.length <= 3, `${turnstile.passed.length} calls`);
    });
  }

  test("embeddings", async () => {
    const embedder = createOpenAI({ apiKey: anyone.key, baseURL: `${turnstile.url}/v1` }).embedding(model);
    assert.equal((await embed({ model: embedder, value: "hi" })).embedding.length, 32);
  });
});

describe("the Python SDKs", { skip: existsSync(python) ? false : "no Python; `npm test` sets one up" }, () => {
  const run = (script, ...args) =>
    new Promise((resolve) => {
      const child = spawn(python, [inRoot("tests/python", script), turnstile.url, ...args], { stdio: ["ignore", "pipe", "pipe"] });
      let output = "";
      for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (output += bytes));
      child.once("exit", (status) => resolve({ status, output }));
    });

  for (const script of ["openai_sdk.py", "anthropic_sdk.py"]) {
    test(script, async () => {
      const [spent, waiting] = [await exhausted(), await impatient()];
      const { status, output } = await run(script, anyone.key, spent.key, waiting.key);
      assert.equal(status, 0, output);
      const calls = JSON.parse(output.trim().split("\n").at(-1)).calls;
      assert.ok(turnstile.passed.length >= calls && turnstile.passed.length <= calls + 2, `${turnstile.passed.length} calls for ${calls}`);
    });
  }
});
