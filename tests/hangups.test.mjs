// Callers who hang up: every one of them is settled, and pays for what was produced.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { callersOf } from "./harness/callers.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const body = { model: "m-small", messages: [{ role: "user", content: "tell me a long story" }] };
const CHAT = "/v1/chat/completions";
const words = (count) => Array.from({ length: count }, () => " and");

let gateway, upstream, caller;
before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream });
  caller = callersOf(gateway);
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

/** Reads until `enough(words so far)`, hangs up, and says how many words came. */
async function readSome(user, enough, json = { ...body, stream: true }) {
  const leave = new AbortController();
  const answer = await user.open(CHAT, json, { signal: leave.signal });
  let seen = 0;
  for await (const chunk of answer.body) {
    seen += Buffer.from(chunk).toString().split('" and"').length - 1;
    if (enough(seen)) break;
  }
  leave.abort();
  return seen;
}

test("20 callers who read five pieces and leave each pay for about five", async () => {
  const users = await Promise.all(Array.from({ length: 20 }, () => caller()));
  upstream.always({ content: words(100), chunkDelay: 50, usage: { prompt_tokens: 9, completion_tokens: 300 } });
  const seen = await Promise.all(users.map((user) => readSome(user, (count) => count >= 5)));
  for (const [i, user] of users.entries()) {
    const month = await user.settled(15_000);
    const [prompt, completion] = await user.ledger(1);
    assert.equal(month.used, prompt + completion);
    assert.ok(completion >= seen[i] && completion <= seen[i] + 30, `read ${seen[i]}, paid ${completion}`);
    assert.ok(prompt > 0);
    assert.equal((await user.policy("daily")).used, 1);
  }
  await upstream.until((u) => u.requests.every((request) => request.gone));
});

test("a caller who leaves before the first byte, of a stream or not, pays for the prompt at the least", async () => {
  for (const stream of [true, false]) {
    const user = await caller();
    upstream.always({ delay: 1_500, content: words(20), usage: { prompt_tokens: 9, completion_tokens: 20 } });
    const leave = new AbortController();
    const answer = user.open(CHAT, { ...body, stream }, { signal: leave.signal });
    await upstream.until((u) => u.count() > 0);
    await pause(200);
    leave.abort();
    await assert.rejects(answer);
    const month = await user.settled(15_000);
    assert.ok(month.used > 0 && month.used <= 60, `stream ${stream}: ${month.used}`);
    await user.ledger(1);
    upstream.reset();
  }
});

test("a caller who leaves while a whole answer is under way pays too", async () => {
  const user = await caller();
  const answer = JSON.stringify({ id: "x", choices: [], usage: { prompt_tokens: 9, completion_tokens: 50, total_tokens: 59 } });
  upstream.always({ body: answer, delay: 800 });
  const leave = new AbortController();
  const waiting = user.open(CHAT, body, { signal: leave.signal });
  setTimeout(() => leave.abort(), 300);
  await assert.rejects(waiting);
  const month = await user.settled(15_000);
  assert.ok(month.used > 0, String(month.used));
});

test("200 callers who leave at random: every one is settled, none holds anything, the sum is what was sent", { timeout: 180_000 }, async () => {
  const users = await Promise.all(Array.from({ length: 10 }, () => caller()));
  upstream.always({ content: words(120), chunkDelay: 10, usage: { prompt_tokens: 14, completion_tokens: 120 } });
  upstream.requests = [];
  const read = new Map(users.map((user) => [user, 0]));
  for (let wave = 0; wave < 4; wave++) {
    const left = Array.from({ length: 50 }, async (_, i) => {
      const user = users[i % users.length];
      const bound = Math.floor(Math.random() * 160);
      const seen = await readSome(user, (count) => count >= bound);
      read.set(user, read.get(user) + seen);
    });
    await Promise.all(left);
  }
  for (const user of users) {
    await user.settled(20_000);
    const [prompt, completion] = await user.ledger(20);
    // What was under way when they left: at most some pieces in the buffers of each.
    assert.ok(completion >= read.get(user) && completion <= read.get(user) + 20 * 60, `read ${read.get(user)}, paid ${completion}`);
    assert.ok(prompt >= 20 * 5 && prompt <= 20 * 30, String(prompt));
  }
});

test("a stream longer than 30 s: who leaves near its end pays for all of it so far", { timeout: 120_000 }, async () => {
  const user = await caller();
  upstream.always({ content: words(400), chunkDelay: 100, usage: null });
  const seen = await readSome(user, (count) => count >= 330);
  await user.settled(15_000);
  const [, completion] = await user.ledger(1);
  assert.ok(completion >= seen && completion <= seen + 30, `read ${seen}, paid ${completion}`);
});

test("a caller who leaves a provider that ignores max_tokens pays little more than was asked for", async () => {
  const user = await caller({ monthly_token_limit: 100_000 });
  upstream.always({ content: words(3_000), chunkDelay: 3, usage: null });
  const leave = new AbortController();
  const answer = await user.open(CHAT, { ...body, stream: true, max_tokens: 20 }, { signal: leave.signal });
  assert.equal(answer.status, 200);
  for await (const _ of answer.body) break;
  leave.abort();
  const month = await user.settled(15_000);
  assert.ok(month.used > 0 && month.used < 100, String(month.used));
});
