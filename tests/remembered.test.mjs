// What an isolate remembers of keys, plans and models is read again before it is old, behind an answer: whoever calls
// often does not wait for it.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { after, afterEach, before, test } from "node:test";
import { newCaller } from "./harness/caller.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

/** What a call took, in ms, that waited for a key or for a table: less than a read of them takes here. */
const WAITED = 800;
const SECONDS = 17;
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, vars: { LEASES: "false" } });
});
afterEach(() => gateway.noFaults());
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

test("a caller who comes often never waits for keys, plans and models to be read", { timeout: 60_000 }, async () => {
  const user = await newCaller(gateway);
  assert.equal((await user.chat()).status, 200);
  await gateway.faults([
    { binding: "CACHE", op: "get", match: "key:", mode: "hang" },
    { binding: "DB", match: "FROM api_keys", mode: "slow", ms: 400 },
    { binding: "DB", match: "FROM plans", mode: "slow", ms: 1_500 },
    { binding: "DB", match: "FROM models", mode: "slow", ms: 1_500 },
  ]);
  await gateway.resetCalls();
  const took = await chatFor(user, SECONDS * 1_000);
  const { "CACHE.get": keys, "DB.all": tables } = await gateway.calls();
  assert.ok(keys >= 3 && tables >= 6, `${keys} reads of keys, ${tables} of tables`);
  // A machine that has much to do may hold up one that waits for nothing.
  const slow = took.filter((ms) => ms >= WAITED);
  assert.ok(slow.length <= 1, `of ${took.length} calls these waited: ${slow}`);
});

test("nor while the ledger hangs", { timeout: 60_000 }, async () => {
  const user = await newCaller(gateway);
  assert.equal((await user.chat()).status, 200);
  await gateway.faults([{ binding: "DB", mode: "hang", ms: 70_000 }]);
  const took = await chatFor(user, SECONDS * 1_000);
  assert.deepEqual(took.filter((ms) => ms >= 2 * WAITED), [], `of ${took.length} calls`);
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
