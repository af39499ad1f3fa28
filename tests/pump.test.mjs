// js/streams.js by itself, with a clock that tests move: what no test of the gateway could wait for.
import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { collect, pump, STOPPED, TIMED_OUT } from "../js/streams.js";

const patience = 120_000;
const turn = () => new Promise((resolve) => setImmediate(resolve));
const still = new AbortController().signal;

/** Lets `ms` pass, a second at a time. */
async function pass(ms) {
  for (let i = 0; i < ms; i += 1_000) {
    mock.timers.tick(1_000);
    await turn();
  }
}

function clocked(name, work) {
  test(name, async () => {
    mock.timers.enable({ apis: ["setTimeout", "Date"] });
    try {
      await work();
    } finally {
      mock.timers.reset();
    }
  });
}

/** A stream whose chunks are given one by one. */
function source() {
  let controller;
  const stream = new ReadableStream({ start: (given) => void (controller = given) });
  return { stream, give: (text) => controller.enqueue(Buffer.from(text)), end: () => controller.close() };
}

clocked("whoever passes a stream on hears that it is under way, while the provider is silent and while the caller does not read", async () => {
  const { stream, give } = source();
  const fed = [];
  const feed = (chunk) => (fed.push(chunk.byteLength), chunk.byteLength > 0 ? chunk : undefined);
  let read;
  const writer = { write: () => new Promise((resolve) => (read = resolve)) };
  let how;
  void pump(stream, writer, patience, still, feed).then((told) => (how = told));
  await pass(61_000);
  assert.deepEqual(fed, [0, 0], "silent");
  give("words");
  await turn();
  await pass(10 * 60_000);
  assert.deepEqual(fed.slice(2, 4), [5, 0]);
  assert.ok(fed.length >= 20, `${fed.length} times`);
  assert.equal(how, undefined, "a caller who does not read is waited for");
  read();
  await turn();
  await pass(patience + 1_000);
  assert.equal(how, TIMED_OUT, "a provider who does not write is not");
});

clocked("an answer that is wanted whole may not trickle for ever", async () => {
  const { stream, give } = source();
  let got;
  void collect(stream, patience, still, 1_000).then((told) => (got = told));
  for (let i = 0; i < 4 && got === undefined; i += 1) {
    give(" ");
    await pass(40_000);
  }
  assert.equal(got, TIMED_OUT);
});

clocked("nor be larger than is wanted", async () => {
  const { stream, give, end } = source();
  give("12345");
  give("67890");
  end();
  assert.equal(await collect(stream, patience, still, 9), STOPPED);
});
