// How a call ended rides along with the next message to its account: one message a call, nobody sees a stale count, and
// whatever becomes of a message, every call is charged once.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { after, afterEach, before, test } from "node:test";
import { newCaller } from "./harness/caller.mjs";
import { eventually } from "./harness/eventually.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const usage = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
const plan = { daily_limit: 1_000, monthly_token_limit: 1_000_000, max_tokens_per_request: 100 };
/** How long an end waits for a message that takes it along, in ms. */
const RIDE = 25;
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage });
  gateway = await startGateway({ upstream, vars: { LEASES: "false" } });
});
afterEach(() => gateway.noFaults());
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const hops = async () => (await gateway.calls())["ACCOUNTS.ask"] ?? 0;
const tokens = async (user) => {
  const { used, reserved } = await user.policy("monthly-tokens");
  return [used, reserved];
};

test("one call after the other costs one message each", async () => {
  const user = await newCaller(gateway, plan);
  assert.equal((await user.chat()).status, 200);
  await gateway.resetCalls();
  upstream.requests = [];
  for (let i = 0; i < 20; i++) assert.equal((await user.chat()).status, 200);
  // The ends of the call before and of the last may be told alone, and on a slow machine others that wait too long.
  const late = upstream.requests.filter(({ at }, i, all) => i > 0 && at - all[i - 1].answeredAt >= RIDE).length;
  assert.ok((await hops()) <= 22 + late, `${await hops()} messages for 20 calls, ${late} of them late`);
});

test("an end that nothing takes along is told by a message of its own", async () => {
  const user = await newCaller(gateway, plan);
  await gateway.resetCalls();
  assert.equal((await user.chat()).status, 200);
  await eventually(async () => assert.equal(await hops(), 2));
  await pause(200);
  assert.equal(await hops(), 2);
  assert.deepEqual(await tokens(user), [12, 0]);
});

test("whoever asks how they stand is told with what has just ended", async () => {
  const user = await newCaller(gateway, plan);
  for (let calls = 1; calls <= 10; calls++) {
    assert.equal((await user.chat()).status, 200);
    assert.deepEqual(await tokens(user), [12 * calls, 0]);
  }
});

test("a caller who may have one call under way is not refused for their own last one", async () => {
  const user = await newCaller(gateway, { ...plan, max_concurrent: 1 });
  for (let i = 0; i < 10; i++) assert.equal((await user.chat()).status, 200);
});

for (const [what, rules] of [
  ["the message is lost", [{ mode: "error", match: '"hear"', times: 3 }]],
  ["its answer is lost", [{ mode: "commit-then-error", match: '"hear"', times: 3 }]],
  ["the next call's answer is lost", [{ mode: "commit-then-error", match: '"admit"', skip: 1, times: 1 }]],
  ["the account answers nonsense", [{ mode: "garbage", match: '"hear"', times: 2 }]],
  ["the account hangs", [{ mode: "hang", match: '"hear"', times: 1, ms: 10_000 }]],
]) {
  test(`each call is charged once: ${what}`, { timeout: 60_000 }, async () => {
    const user = await newCaller(gateway, { ...plan, on_outage: "closed" });
    await gateway.faults(rules.map((rule) => ({ binding: "ACCOUNTS", ...rule })));
    const answers = await Promise.all([user.chat(), pause(5).then(() => user.chat()), pause(60).then(() => user.chat())]);
    const served = answers.filter(({ status }) => status === 200).length;
    assert.ok(served >= 1);
    await eventually(async () => {
      const [day] = await gateway.usageRows(user.user_id);
      assert.deepEqual([day?.calls, day?.prompt_tokens, day?.completion_tokens], [served, 7 * served, 5 * served]);
    }, 30_000);
    assert.deepEqual(await tokens(user), [12 * served, 0]);
  });
}

test("of an isolate that is lost with an end, the reservation stays until its lease is over", async () => {
  const user = await newCaller(gateway, plan);
  await gateway.faults([{ binding: "ACCOUNTS", mode: "error", match: '"hear"' }]);
  assert.equal((await user.chat({ max_tokens: 50 })).status, 200);
  await gateway.kill9();
  await gateway.faults([]).catch(() => {});
  await gateway.start();
  const [used, reserved] = await tokens(user);
  assert.ok(used === 0 && reserved > 50, `${used} used, ${reserved} reserved`);
  await gateway.clock(Date.now() + 200_000);
  const [after] = await tokens(user);
  assert.ok(after > 0 && after < 50, "the prompt's estimate");
});
