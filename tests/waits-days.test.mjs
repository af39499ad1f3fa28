// Refused for the day three hundred times, around the world: each Retry-After, waited out, succeeds.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { newCaller } from "./harness/caller.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { each, exhaust, upTo } from "./harness/refused.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const zones = ["UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Chatham", "America/St_Johns", "Europe/Berlin"];
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

test("300 users of daily quotas in zones around the world wait as told, and pass", { timeout: 240_000 }, async () => {
  const start = Date.parse("2025-03-29T10:17:31Z");
  await gateway.clock(start);
  const users = [];
  await each(300, async (i) => {
    const reset = i % 10 === 9 ? { mode: "rolling" } : { timezone: zones[i % zones.length] };
    const user = await newCaller(gateway, { daily_limit: upTo(3), reset });
    const wait = await exhaust(user);
    users.push({ user, due: gateway.now() + wait * 1000 });
  });
  users.sort((a, b) => a.due - b.due);
  // The clock can't stand still for each of them: it steps to where the last of a group has waited long enough.
  for (let i = 0; i < users.length; i += 50) {
    const group = users.slice(i, i + 50);
    await gateway.clock(group.at(-1).due);
    await each(group.length, async (j) => {
      const answer = await group[j].user.chat();
      assert.equal(answer.status, 200, answer.text);
    });
  }
});
