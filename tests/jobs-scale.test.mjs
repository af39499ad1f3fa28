// A thousand jobs wait for one midnight: they are spread, no user's many keep another's few from running, and nobody
// passes a limit.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "./harness/eventually.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const SPREAD = 300_000;
const DAY = 86_400_000;
const midnight = Date.parse("2025-12-01T00:00:00Z");
const usage = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage });
  gateway = await startGateway({ upstream, vars: { USER_REQUEST_LIMIT_MAX_REQUESTS: "0" } });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

/** A user who has used up the day and left `jobs` jobs for the next ones. */
async function leaves(jobs, daily_limit) {
  const plan_id = `plan-${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, daily_limit, monthly_token_limit: 1_000_000, max_tokens_per_request: 1000, over_quota: { strategy: "queue", queue_limit: jobs } });
  const user_id = await gateway.createUser({ user_id: `user-of-${plan_id}`, plan_id });
  const key = await gateway.createKey(user_id);
  const query = () => gateway.call("/api/ai/query", { key, json: { prompt: "hi", model: "m-small" } });
  for (let i = 0; i < daily_limit; i++) assert.equal((await query()).status, 200);
  for (let i = 0; i < jobs; i++) {
    const answer = await query();
    assert.equal(answer.status, 202, answer.text);
  }
  return { user_id, key, jobs, daily_limit };
}

/** Delivers a message for each job that is due by now, in the order in which the platform would. */
async function deliverAllDue(at) {
  const { results } = await gateway.d1
    .prepare("SELECT job_id, user_id, not_before_ms FROM jobs WHERE status = 'queued' AND not_before_ms <= ? ORDER BY not_before_ms")
    .bind(at)
    .all();
  const worker = await gateway.mf.getWorker();
  for (let i = 0; i < results.length; i += 10) {
    const batch = results.slice(i, i + 10);
    const messages = batch.map(({ job_id }, j) => ({ id: `m${i + j}-${at}`, timestamp: new Date(), attempts: 1, body: JSON.stringify({ v: 1, job: job_id, ticket: 1_000_000 + Math.floor(at / DAY) }) }));
    await worker.queue("sluice-tasks", messages);
  }
  return results;
}

const done = async ({ user_id }) => (await gateway.d1.prepare("SELECT count(*) AS n FROM jobs WHERE user_id = ? AND status = 'succeeded'").bind(user_id).first()).n;

async function dailyUsed({ key }) {
  const { body } = await gateway.call("/api/quota", { key });
  return body.policies.find(({ name }) => name === "daily").used;
}

test("one user's 500 jobs and fifty users' ten each", { timeout: 280_000 }, async () => {
  await gateway.clock(midnight - 2 * 3_600_000);
  const many = leaves(500, 100);
  const few = [];
  for (let i = 0; i < 50; i += 5) few.push(...(await Promise.all(Array.from({ length: 5 }, () => leaves(10, 5)))));
  const users = [await many, ...few];

  const waiting = (await gateway.d1.prepare("SELECT not_before_ms AS due FROM jobs WHERE status = 'queued'").all()).results;
  assert.equal(waiting.length, 1000);
  const tenths = Array(10).fill(0);
  for (const { due } of waiting) {
    assert.ok(due >= midnight && due < midnight + SPREAD, new Date(due).toISOString());
    tenths[Math.floor(((due - midnight) / SPREAD) * 10)] += 1;
  }
  assert.ok(Math.min(...tenths) >= 60 && Math.max(...tenths) <= 140, `spread over the minutes: ${tenths}`);

  for (let day = 0; day < 2; day++) {
    const at = midnight + day * DAY + SPREAD;
    await gateway.clock(at);
    upstream.requests = [];
    const order = await deliverAllDue(at);
    assert.equal(order.length, day === 0 ? 1000 : 1000 - 100 - 250);
    assert.equal(upstream.count(), 100 + 250, "every user got their day and no more");
    for (const user of users) assert.equal(await done(user), Math.min(user.jobs, (day + 1) * user.daily_limit), user.user_id);
    await eventually(async () => {
      for (const user of users) assert.equal(await dailyUsed(user), user.daily_limit);
    });
    const firstHalf = new Set(order.slice(0, order.length / 2).map(({ user_id }) => user_id));
    assert.ok(firstHalf.size >= 45, `${firstHalf.size} of 51 users had a job among the first half`);
  }

  const left = (await gateway.d1.prepare("SELECT user_id, not_before_ms AS due FROM jobs WHERE status = 'queued'").all()).results;
  assert.equal(left.length, 500 - 200);
  for (const { user_id, due } of left) {
    assert.equal(user_id, users[0].user_id);
    assert.ok(due >= midnight + 2 * DAY && due < midnight + 2 * DAY + SPREAD);
  }
});
