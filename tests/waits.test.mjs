// A thousand refusals of every kind: each one's Retry-After, waited out, succeeds.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { newCaller } from "./harness/caller.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const zones = ["UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Chatham", "America/St_Johns", "Europe/Berlin"];
let gateway, upstream;
before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, vars: { USER_REQUEST_LIMIT_MAX_REQUESTS: "0" } });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const upTo = (most) => 1 + Math.floor(Math.random() * most);

/** Runs `work` for every number below `count`, sixteen at a time. */
async function each(count, work) {
  let next = 0;
  const worker = async () => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: 16 }, worker));
}

/** Calls until refused; gives the whole seconds to wait. */
async function exhaust(user) {
  for (let i = 0; i < 20; i++) {
    const answer = await user.chat();
    if (answer.status === 429) return waitOf(answer);
    assert.equal(answer.status, 200, answer.text);
  }
  throw new Error("was never refused");
}

function waitOf(answer) {
  const wait = answer.headers.get("retry-after");
  assert.match(wait, /^[1-9][0-9]*$/, answer.text);
  assert.equal(/;t=(\d+)/.exec(answer.headers.get("ratelimit"))[1], wait);
  return Number(wait);
}

test("700 users of random short limits wait as told, and pass", { timeout: 240_000 }, async () => {
  const shapes = [
    () => ({ rate: { capacity: upTo(3), refill_per_minute: 8 + upTo(200) } }),
    () => ({ endpoints: [{ name: "chat", max_requests: upTo(3), per_seconds: upTo(8) }] }),
    () => ({ rate: { capacity: upTo(3), refill_per_minute: 8 + upTo(60) }, endpoints: [{ name: "chat", max_requests: upTo(3), per_seconds: upTo(8) }] }),
    () => ({ tokens_per_minute: 600 + upTo(3_000), max_tokens_per_request: 300 }),
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

test("300 users of daily quotas in zones around the world wait as told, and pass", { timeout: 240_000 }, async () => {
  const start = Date.parse("2025-03-29T10:17:31Z");
  let offset;
  const clock = (at) => {
    offset = at - Date.now();
    return gateway.restart({ vars: { CLOCK_OFFSET_MS: String(offset) } });
  };
  await clock(start);
  const users = [];
  await each(300, async (i) => {
    const reset = i % 10 === 9 ? { mode: "rolling" } : { timezone: zones[i % zones.length] };
    const user = await newCaller(gateway, { daily_limit: upTo(3), reset });
    const wait = await exhaust(user);
    users.push({ user, due: Date.now() + offset + wait * 1000 });
  });
  users.sort((a, b) => a.due - b.due);
  // The clock can't stand still for each of them: it steps to where the last of a group has waited long enough.
  for (let i = 0; i < users.length; i += 50) {
    const group = users.slice(i, i + 50);
    await clock(group.at(-1).due);
    await each(group.length, async (j) => {
      const answer = await group[j].user.chat();
      assert.equal(answer.status, 200, answer.text);
    });
  }
});
