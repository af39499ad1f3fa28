// What an isolate remembers of keys, plans and models is read again before it is old, behind an answer: whoever calls
// often does not wait for it.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { after, before, test } from "node:test";
import { newCaller } from "./harness/caller.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const SLOW = 400;
const SECONDS = 17;
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, vars: { LEASES: "false" } });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

test("a caller who comes often never waits for keys, plans and models to be read", { timeout: 60_000 }, async () => {
  const user = await newCaller(gateway);
  assert.equal((await user.chat()).status, 200);
  await gateway.faults([
    { binding: "CACHE", op: "get", match: "key:", mode: "slow", ms: SLOW },
    { binding: "DB", op: "all", match: "FROM plans", mode: "slow", ms: 2 * SLOW },
    { binding: "DB", op: "all", match: "FROM models", mode: "slow", ms: 2 * SLOW },
  ]);
  await gateway.resetCalls();
  const took = await chatFor(user, SECONDS * 1_000);
  const { "CACHE.get": keys, "DB.all": tables } = await gateway.calls();
  assert.ok(keys >= 3 && tables >= 6, `read again: ${keys} keys, ${tables} tables`);
  // A machine that has much to do may hold up one that waits for nothing.
  const slow = took.filter((ms) => ms >= SLOW);
  assert.ok(slow.length <= 1, `of ${took.length} calls these waited: ${slow}`);
});

/** One call after the other; how long each took, in ms. */
async function chatFor(user, ms) {
  const took = [];
  for (const end = Date.now() + ms; Date.now() < end; ) {
    const began = Date.now();
    assert.equal((await user.chat()).status, 200);
    took.push(Date.now() - began);
    await pause(20);
  }
  return took;
}
