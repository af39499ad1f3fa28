// Streams through the built Worker: the provider's bytes as they are, its usage read whatever way they end.
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { inRoot } from "../scripts/lib/paths.mjs";
import { callersOf, dataOf } from "./harness/callers.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const messages = [{ role: "user", content: "hi" }];
const chatBody = { model: "m-small", messages, stream: true };
const CHAT = "/v1/chat/completions";
/** How long a provider may be silent here. */
const PATIENCE = 2_000;

let gateway, upstream, caller;
before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, vars: { UPSTREAM_TIMEOUT_MS: String(PATIENCE) } });
  await gateway.keepToDocument();
  caller = callersOf(gateway);
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

beforeEach(() => upstream.reset());

const recordings = [
  ["chat-usage-chunk", CHAT, 21, 15],
  ["chat-usage-finish", CHAT, 21, 15],
  ["chat-usage-empty-delta", CHAT, 21, 15],
  ["chat-usage-cumulative", CHAT, 21, 15],
  ["chat-tools", CHAT, 21, 15],
  ["completions", "/v1/completions", 21, 15],
  ["messages", "/v1/messages", 21, 31],
  ["responses", "/v1/responses", 21, 15],
];
const bodies = {
  [CHAT]: chatBody,
  "/v1/completions": { model: "m-small", prompt: "hi", stream: true },
  "/v1/messages": { model: "m-small", messages, max_tokens: 500, stream: true },
  "/v1/responses": { model: "m-small", input: "hi", stream: true },
};
const isUsageChunk = (event) => event.includes('"choices":[]') && event.includes('"usage":{');
const withoutUsageChunk = (text) => text.split(/(?<=\n\n)/).filter((event) => !isUsageChunk(event)).join("");

describe("bytes pass as they are, wherever they are cut", () => {
  for (const [name, path, prompt, completion] of recordings) {
    test(name, async () => {
      const raw = readFileSync(inRoot("tests/streams", `${name}.sse`), "utf8");
      const hasChoices = path === CHAT || path === "/v1/completions";
      const user = await caller();
      let calls = 0;
      for (const split of [3, 61, [1, 2, raw.length - 3, raw.length - 1], undefined]) {
        for (const asked of hasChoices ? [true, false] : [false]) {
          upstream.next({ raw, split });
          const answer = await user.post(path, { ...bodies[path], ...(asked && { stream_options: { include_usage: true } }) });
          assert.equal(answer.status, 200, answer.text);
          assert.equal(answer.text, asked || !hasChoices ? raw : withoutUsageChunk(raw), `split ${split}, asked ${asked}`);
          calls += 1;
        }
      }
      await user.billed(calls, prompt * calls, completion * calls);
      assert.equal((await user.settled()).used, calls * (prompt + completion));
    });
  }
});

test("line ends of every kind and comments pass too", async () => {
  const user = await caller();
  for (const end of ["\r\n", "\r"]) {
    const raw = readFileSync(inRoot("tests/streams/chat-usage-finish.sse"), "utf8").replaceAll("\n", end) + `: bye${end}${end}`;
    upstream.next({ raw, split: 7 });
    assert.equal((await user.post(CHAT, chatBody)).text, raw);
  }
  await user.billed(2, 42, 30);
});

test("the first bytes are passed on before the last exist, with all headers", async () => {
  const user = await caller();
  upstream.next({ content: ["a", "b", "c", "d"], chunkDelay: 300 });
  const answer = await user.open(CHAT, chatBody);
  for (const name of ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-request-id", "x-ratelimit-remaining-tokens"]) {
    assert.ok(answer.headers.get(name), name);
  }
  assert.match(answer.headers.get("content-type"), /^text\/event-stream/);
  assert.match(answer.headers.get("cache-control"), /no-store/);
  const reader = answer.body.getReader();
  await reader.read();
  assert.ok(!upstream.last.finished);
  while (!(await reader.read()).done);
  await user.billed(1, 9, 12);
});

describe("a stream whose pieces come fast is taken in beats", () => {
  const words = Array.from({ length: 60 }, (_, i) => ` word${i}`);

  test("and is the same to the byte, its hidden usage included", async () => {
    const user = await caller();
    upstream.next({ content: words, usageIn: "last", usage: { prompt_tokens: 9, completion_tokens: 60 }, chunkDelay: 1 });
    const data = dataOf((await user.post(CHAT, chatBody)).text);
    assert.equal(data.at(-1), "[DONE]");
    assert.ok(data.slice(0, -1).every((chunk) => chunk.choices.length === 1));
    assert.equal(data.slice(0, -1).map((chunk) => chunk.choices[0].delta.content ?? "").join(""), words.join(""));
    await user.billed(1, 9, 60);
  });

  test("but nothing is kept back once it pauses", async () => {
    const user = await caller();
    upstream.next({ content: words, usage: null, chunkDelay: 1, hangAfter: 51 });
    const began = Date.now();
    const answer = await user.open(CHAT, chatBody);
    let text = "";
    for await (const chunk of answer.body) {
      text += Buffer.from(chunk).toString();
      if (text.includes(words[49])) break;
    }
    assert.ok(text.includes(words[49]), text);
    assert.ok(Date.now() - began < PATIENCE / 2, `${Date.now() - began} ms`);
  });

  test("and a caller who does not read holds up its provider", async () => {
    const user = await caller();
    const raw = `: ${"x".repeat(8_000)}\n\n`.repeat(8_000) + readFileSync(inRoot("tests/streams/chat-usage-finish.sse"), "utf8");
    upstream.next({ raw, split: 1 << 18 });
    const answer = await user.open(CHAT, chatBody);
    await pause(PATIENCE);
    assert.ok(!upstream.last.finished);
    let length = 0;
    for await (const chunk of answer.body) length += chunk.length;
    assert.equal(length, Buffer.byteLength(raw));
    await user.billed(1, 21, 15);
  });
});

describe("usage is asked for, read in every place, and shown only to who asked", () => {
  const places = ["last", "always-last", "finish", "empty-delta", "every"];
  for (const asked of [undefined, false, true]) {
    for (const usageIn of places) {
      test(`include_usage ${asked}, usage in ${usageIn}`, async () => {
        const user = await caller();
        upstream.next({ usageIn, usage: { prompt_tokens: 11, completion_tokens: 40 } });
        const answer = await user.post(CHAT, { ...chatBody, ...(asked !== undefined && { stream_options: { include_usage: asked } }) });
        assert.equal(upstream.last.json.stream_options.include_usage, true);
        const alone = dataOf(answer.text).filter((chunk) => chunk.usage && chunk.choices.length === 0);
        const has = asked === true && (usageIn === "last" || usageIn === "always-last");
        assert.equal(alone.length, has ? 1 : 0);
        assert.equal(dataOf(answer.text).at(-1), "[DONE]");
        await user.billed(1, 11, 40);
      });
    }
  }

  test("a provider that refuses to be asked is asked without, once", async () => {
    const refuse = (words) => ({ status: 400, body: { error: { message: words, type: "invalid_request_error", param: null, code: null } } });
    const user = await caller();
    upstream.reset();
    upstream.next(refuse("Unrecognized request argument supplied: stream_options"), { usage: null, content: [" one", " two", " three"] });
    const answer = await user.post(CHAT, chatBody);
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(upstream.requests.map((request) => "stream_options" in request.json), [true, false]);
    const [prompt, completion] = await user.ledger(1);
    assert.ok(prompt > 0 && completion === 3, `${prompt} ${completion}`);

    upstream.reset();
    upstream.next(refuse("Unknown field: stream_options"));
    const own = await user.post(CHAT, { ...chatBody, stream_options: { include_usage: true } });
    assert.equal(own.status, 400);
    upstream.next(refuse("temperature is too high"));
    assert.equal((await user.post(CHAT, chatBody)).status, 400);
    assert.equal(upstream.count(), 2);
  });
});

describe("every ending is metered", () => {
  const usage = { prompt_tokens: 9, completion_tokens: 60 };
  for (const finish of ["stop", "length", "content_filter", "tool_calls"]) {
    test(`finish_reason ${finish}, streamed and whole`, async () => {
      const user = await caller();
      upstream.next({ finish, usage }, { finish, usage });
      assert.match((await user.post(CHAT, chatBody)).text, new RegExp(`"finish_reason":"${finish}"`));
      assert.equal((await user.post(CHAT, { ...chatBody, stream: false })).status, 200);
      await user.billed(2, 18, 120);
    });
  }

  const responseEnds = { completed: null, incomplete: { reason: "max_output_tokens" }, failed: null };
  for (const [status, incomplete_details] of Object.entries(responseEnds)) {
    test(`response.${status}`, async () => {
      const user = await caller();
      const response = { id: "resp_1", status, incomplete_details, usage: { input_tokens: 9, output_tokens: 60, total_tokens: 69 } };
      const type = `response.${status}`;
      upstream.next({ events: [{ event: type, data: { type, sequence_number: 0, response } }] });
      await user.post("/v1/responses", bodies["/v1/responses"]);
      await user.billed(1, 9, 60);
    });
  }

  test("a message of Anthropic's counts its cache fields beside the input, and the last output", async () => {
    const user = await caller();
    upstream.next({ usage: { prompt_tokens: 5, completion_tokens: 70, cache_read_input_tokens: 20, cache_creation_input_tokens: 3 } });
    await user.post("/v1/messages", bodies["/v1/messages"]);
    await user.billed(1, 28, 70);
  });

  const forty = Array.from({ length: 60 }, () => " and");
  const deaths = {
    "the connection dies": [{ cutAfter: 41, usage: null }, 40, "upstream_incomplete"],
    "the stream just ends": [{ done: false, usage: null, events: forty.slice(20).map((content) => ({ id: "x", choices: [{ index: 0, delta: { content }, finish_reason: null }] })) }, 40, "upstream_incomplete"],
    "the provider falls silent": [{ hangAfter: 41, usage: null }, 40, "upstream_timeout"],
  };
  for (const [name, [behaviour, completion, code]] of Object.entries(deaths)) {
    test(`${name}: the caller is told, and pays for what came`, async () => {
      const user = await caller();
      upstream.next({ content: forty, ...behaviour });
      const answer = await user.post(CHAT, chatBody);
      assert.equal(dataOf(answer.text).at(-1).error.code, code);
      assert.doesNotMatch(answer.text, /\[DONE\]/);
      assert.equal((await user.ledger(1))[1], completion);
      await user.settled();
    });
  }

  test("an error event of the provider's passes, and what came before it is paid for", async () => {
    const user = await caller();
    upstream.next({ content: forty, errorAfter: 31, usage: null }, { content: forty, errorAfter: 33, usage: null });
    const answer = await user.post(CHAT, chatBody);
    assert.equal(dataOf(answer.text).at(-1).error.message, "The server had an error");
    assert.equal((await user.ledger(1))[1], 30);
    const message = await user.post("/v1/messages", bodies["/v1/messages"]);
    assert.match(message.text, /event: error\ndata: .*overloaded_error/);
    assert.equal((await user.ledger(2))[1], 60);
  });

  for (const status of [500, 503, 429]) {
    test(`an upstream ${status} before the first byte costs nothing, and is no stream`, async () => {
      const user = await caller();
      upstream.next({ status });
      const answer = await user.post(CHAT, chatBody);
      assert.ok(answer.status >= 500 && /^(upstream_|server_is_overloaded)/.test(answer.body.error.code), answer.text);
      assert.deepEqual(await user.settled().then((month) => month.used), 0);
      assert.equal((await user.policy("daily")).used, 0);
    });
  }

  test("a provider that never answers is a 504 in time, and costs nothing", async () => {
    const user = await caller();
    upstream.next({ hang: true });
    const began = Date.now();
    const answer = await user.post(CHAT, chatBody);
    assert.deepEqual([answer.status, answer.body.error.code], [504, "upstream_timeout"]);
    assert.ok(Date.now() - began < PATIENCE + 3_000);
    assert.equal((await user.settled()).used, 0);
  });
});

describe("an answer in another form than was asked for", () => {
  const garbage = {
    "JSON for a stream": [{ body: { id: "x", choices: [] } }, true],
    "a stream for JSON": [{ raw: "data: {}\n\ndata: [DONE]\n\n" }, false],
    "no JSON": [{ body: "<html>" }, false],
    "JSON that is no object": [{ body: "[1]" }, false],
    "half an object": [{ body: '{"id":' }, false],
    "nothing": [{ body: "" }, false],
    "an error called a success": [{ body: { error: { message: "no" } } }, false],
  };
  for (const [name, [behaviour, stream]] of Object.entries(garbage)) {
    test(`${name} is a 502, and is given back`, async () => {
      const user = await caller();
      upstream.next(behaviour);
      const answer = await user.post(CHAT, { ...chatBody, stream });
      assert.equal(answer.status, 502, answer.text);
      assert.match(answer.headers.get("content-type"), /^application\/json/);
      assert.match(answer.body.error.code, /^upstream_(invalid_answer|error)$/);
      assert.equal((await user.settled()).used, 0);
    });
  }

  test("a stream whose type is missing is one all the same", async () => {
    const user = await caller();
    upstream.next({ headers: { "content-type": "text/plain" } });
    const answer = await user.post(CHAT, chatBody);
    assert.match(answer.headers.get("content-type"), /^text\/event-stream/);
    await user.billed(1, 9, 12);
  });
});

describe("a provider that writes past the reservation is cut", () => {
  const LIMIT = 400;
  const plan = { monthly_token_limit: LIMIT };

  test("by its pieces: finish_reason length, [DONE], and the month is never passed by more than a piece", async () => {
    const user = await caller(plan);
    upstream.next({ content: Array.from({ length: 3_000 }, () => " and"), usage: null, chunkDelay: 1 });
    const answer = await user.post(CHAT, { ...chatBody, max_tokens: 10_000 });
    const data = dataOf(answer.text);
    assert.deepEqual([data.at(-1), data.at(-2).choices[0].finish_reason], ["[DONE]", "length"]);
    await upstream.until((u) => u.last.gone);
    const { used } = await user.settled();
    assert.ok(used >= LIMIT - 20 && used <= LIMIT + 1, String(used));
  });

  test("by its text, where pieces are long", async () => {
    const user = await caller(plan);
    const piece = " the river runs past the old mill and";
    upstream.next({ content: Array.from({ length: 500 }, () => piece), usage: null, chunkDelay: 1 });
    const answer = await user.post(CHAT, chatBody);
    assert.match(answer.text, /"finish_reason":"length"/);
    const { used } = await user.settled();
    assert.ok(used <= LIMIT + 8, String(used));
    const words = dataOf(answer.text).filter((chunk) => chunk.choices?.[0]?.delta?.content).length * 8;
    assert.ok(words <= LIMIT * 1.7, `${words} tokens were let through`);
  });

  test("by its own count, as soon as it says so", async () => {
    const user = await caller(plan);
    upstream.next({ content: Array.from({ length: 50 }, () => "x"), usageIn: "every", usage: { prompt_tokens: 3, completion_tokens: 5_000 }, chunkDelay: 5 });
    const answer = await user.post(CHAT, chatBody);
    assert.match(answer.text, /"finish_reason":"length"/);
    assert.ok((await user.settled()).used <= LIMIT + 100);
  });

  test("in the words of each API", async () => {
    const long = { content: Array.from({ length: 2_000 }, () => " and"), usage: null, chunkDelay: 1 };
    const [anthropic, responses] = [await caller(plan), await caller(plan)];
    upstream.next(long);
    const message = await anthropic.post("/v1/messages", { ...bodies["/v1/messages"], max_tokens: 4_000 });
    assert.match(message.text, /event: content_block_stop\n.*\n\nevent: message_delta\ndata: .*"stop_reason":"max_tokens".*\n\nevent: message_stop\ndata: .*\n\n$/);
    upstream.next(long);
    const response = await responses.post("/v1/responses", bodies["/v1/responses"]);
    assert.match(response.text, /event: response.incomplete\ndata: .*"reason":"max_output_tokens".*\n\n$/);
    for (const user of [anthropic, responses]) assert.ok((await user.settled()).used <= LIMIT + 1);
  });

  test("one that keeps to its bound is never cut, however our guess at its text comes out", async () => {
    const user = await caller(plan);
    upstream.next({ content: Array.from({ length: 20 }, () => "Straßenbahnhaltestelle "), usage: null });
    const answer = await user.post(CHAT, { ...chatBody, max_tokens: 150 });
    assert.match(answer.text, /"finish_reason":"stop"/);
  });
});

test("a runtime that dies in mid-stream loses at most what came since the last checkpoint", async () => {
  const inTwoWeeks = new Date(Date.now() + 14 * 86_400_000).getUTCDate();
  const user = await caller({ reset: { billing_day: inTwoWeeks } });
  upstream.next({ content: Array.from({ length: 2_000 }, () => " and"), usage: null, chunkDelay: 4 });
  const answer = await user.open(CHAT, chatBody);
  const reader = answer.body.getReader();
  let text = "";
  while ((text.match(/" and"/g) ?? []).length < 1_200) text += Buffer.from((await reader.read()).value ?? assert.fail(text)).toString();
  const relayed = text.match(/" and"/g).length;
  await gateway.kill9();
  await reader.cancel().catch(() => {});
  await gateway.restart({ vars: { CLOCK_OFFSET_MS: String(400_000) } });
  const { used, reserved } = await user.policy("monthly-tokens");
  assert.equal(reserved, 0);
  assert.ok(used <= relayed + 20 && used >= relayed - 600, `${used} of ${relayed}`);
});
