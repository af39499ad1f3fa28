// Refused by a short limit seven hundred times: each Retry-After, waited out, succeeds.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { newCaller } from "./harness/caller.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { each, exhaust, upTo } from "./harness/refused.mjs";
import { startUpstream } from "./harness/upstream.mjs";

let gateway, upstream;
before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage: { prompt_tokens: 10, completion_tokens: 290, total_tokens: 300 } });
  gateway = await startGateway({ upstream, vars: { USER_REQUEST_LIMIT_MAX_REQUESTS: "0" } });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

test("700 users of random short limits wait as told, and pass", { timeout: 240_000 }, async () => {
  const shapes = [
    () => ({ rate: { capacity: upTo(3), refill_per_minute: 8 + upTo(50) } }),
    () => ({ endpoints: [{ name: "chat", max_requests: upTo(3), per_seconds: upTo(8) }] }),
    () => ({ rate: { capacity: upTo(3), refill_per_minute: 8 + upTo(60) }, endpoints: [{ name: "chat", max_requests: upTo(3), per_seconds: upTo(8) }] }),
    () => ({ tokens_per_minute: 1_500 + upTo(1_500), max_tokens_per_request: 300 }),
  ];
  const late = [];
  const waits = new Set();
  let refusals = 0;
  const pending = [];
  await each(700, async (i) => {
    const user = await newCaller(gateway, shapes[i % shapes.length]());
    const wait = await exhaust(user).catch((error) => error);
    if (wait instanceof Error) return late.push(`${user.plan_id}: ${wait.message}`);
    refusals += 1;
    waits.add(wait);
    const again = async () => {
      await pause(wait * 1000);
      const answer = await user.chat();
      if (answer.status !== 200) late.push(`after ${wait} s: ${answer.text}`);
    };
    pending.push(again());
  });
  await Promise.all(pending);
  assert.deepEqual(late, []);
  assert.equal(refusals, 700);
  assert.ok(waits.size >= 4, `waits of ${[...waits]} s`);
});
