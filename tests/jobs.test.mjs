// Over quota: refused, sent to a cheaper model, or done later; and a job is charged and answered exactly once,
// whatever fails on its way.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
const usage = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
const later = { headers: { prefer: "respond-async" } };
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage });
  gateway = await startGateway({ upstream });
  await gateway.keepToDocument();
});
afterEach(async () => {
  await gateway.noFaults();
  // What waits for midnight may run in the middle of another test.
  await gateway.d1.prepare("DELETE FROM jobs").run();
  upstream.reset();
  upstream.always({ usage });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const query = (key, rest = {}) => gateway.call("/api/ai/query", { key, json: { prompt: "hi", model: "m-small" }, ...rest });
const chat = (key, rest = {}) => gateway.call("/v1/chat/completions", { key, json: hello, ...rest });
const show = async (key, id) => (await gateway.call(`/api/jobs/${id}`, { key })).body;
const row = (id) => gateway.d1.prepare("SELECT * FROM jobs WHERE job_id = ?").bind(id).first();
const change = (id, sql) => gateway.d1.prepare(`UPDATE jobs SET ${sql} WHERE job_id = ?`).bind(id).run();

/** Delivers messages the way the platform does, as one batch; gives back what became of each. */
async function deliver(bodies, queue = "sluice-tasks") {
  const worker = await gateway.mf.getWorker();
  const messages = bodies.map((body, i) => ({ id: `m${Math.random()}${i}`, timestamp: new Date(), attempts: 1, body: typeof body === "object" ? JSON.stringify(body) : body }));
  return worker.queue(queue, messages);
}
let newest = 1_000_000;
const look = (job) => ({ v: 1, job, ticket: (newest += 100) });

/** A user on a plan of their own. */
async function caller({ spent, over_quota = { strategy: "queue" }, ...plan } = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, daily_limit: 10, monthly_token_limit: 100_000, max_tokens_per_request: 1000, over_quota, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
  const key = await gateway.createKey(user_id);
  for (let i = 0; i < (spent ?? 0); i++) assert.equal((await chat(key)).status, 200);
  if (spent) await settled(key, spent);
  return { user_id, plan_id, key };
}

const policy = async (key, name) => (await gateway.call("/api/quota", { key })).body.policies.find((p) => p.name === name);
const settled = (key, calls) =>
  eventually(async () => {
    const tokens = await policy(key, "monthly-tokens");
    assert.deepEqual([(await policy(key, "daily")).used, tokens.used, tokens.reserved], [calls, calls * 12, 0]);
  });

const ended = (key, id, status = "succeeded", ms = 20_000) =>
  eventually(async () => {
    const job = await show(key, id);
    assert.equal(job.status, status, JSON.stringify(job));
    return job;
  }, ms);

/** The user may go on at once, as after midnight. */
async function quotaIsBack(user_id, id) {
  const answer = await gateway.admin(`/admin/users/${user_id}/reset`, { json: {} });
  assert.equal(answer.status, 200, answer.text);
  await change(id, "not_before_ms = 0");
}

test("over quota, the simple door answers 202 with a job that says when", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1 });
  upstream.requests = [];
  const answer = await query(key);
  assert.equal(answer.status, 202, answer.text);
  const job = answer.body;
  assert.equal(job.object, "job");
  assert.equal(job.status, "queued");
  assert.deepEqual([job.attempts, job.result, job.error], [0, null, null]);
  assert.equal(typeof job.message, "string");
  assert.equal(answer.headers.get("location"), `/api/jobs/${job.id}`);
  assert.equal(answer.headers.get("x-sluice-decision"), "queued");
  assert.equal(answer.headers.get("preference-applied"), null);
  assert.ok(answer.headers.get("ratelimit"));
  const midnight = new Date().setUTCHours(24, 0, 0, 0);
  const late = Date.parse(job.estimatedProcessAt) - midnight;
  assert.ok(late >= 0 && late < 300_000, `spread over the minutes after the reset: ${late}`);
  assert.equal(job.not_before, job.estimatedProcessAt);
  assert.ok(Date.parse(job.expires_at) > Date.parse(job.not_before));
  const wait = Number(answer.headers.get("retry-after")) * 1000;
  assert.ok(Math.abs(Date.now() + wait - Date.parse(job.not_before)) < 3000);
  const { message, estimatedProcessAt, ...rest } = job;
  assert.deepEqual(await show(key, job.id), rest);
  assert.equal(upstream.count(), 0);
  assert.deepEqual(await policy(key, "daily").then((p) => [p.used, p.remaining]), [1, 0]);
});

test("on /v1 a call waits only if its caller asked for that", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1 });
  const refused = await chat(key);
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get("x-sluice-decision"), "refused");
  const answer = await chat(key, later);
  assert.equal(answer.status, 202, answer.text);
  assert.equal(answer.headers.get("preference-applied"), "respond-async");
  assert.match(answer.headers.get("vary"), /prefer/i);
  const streamed = await chat(key, { ...later, json: { ...hello, stream: true } });
  assert.equal(streamed.status, 400);
  assert.equal(streamed.body.error.param, "stream");
});

test("other strategies and short limits are refused, and a quota of nothing is not waited for", async () => {
  const cases = [
    await caller({ daily_limit: 1, spent: 1, over_quota: { strategy: "reject" } }),
    await caller({ spent: 1, rate: { capacity: 1, refill_per_minute: 1 } }),
    await caller({ daily_limit: 0 }),
  ];
  for (const { key } of cases) {
    for (const answer of [await query(key), await query(key, later), await chat(key, later)]) assert.equal(answer.status, 429, answer.text);
    assert.deepEqual((await gateway.call("/api/jobs", { key })).body.data, []);
  }
});

test("an override decides for its user alone", async () => {
  const { key, user_id, plan_id } = await caller({ daily_limit: 1, spent: 1, over_quota: { strategy: "reject" } });
  assert.equal((await query(key)).status, 429);
  const answer = await gateway.admin(`/admin/users/${user_id}`, { method: "PATCH", json: { overrides: { over_quota: { strategy: "queue" } } } });
  assert.equal(answer.status, 200, answer.text);
  assert.equal((await query(key)).status, 202);
  const other = await gateway.createKey(await gateway.createUser({ plan_id }));
  await chat(other);
  await settled(other, 1);
  assert.equal((await query(other)).status, 429);
});

test("degrade sends the call to the cheaper model, up to a ceiling of its own", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1, over_quota: { strategy: "degrade", degrade_model: "m-cheap", degrade_daily_limit: 2 } });
  for (let i = 0; i < 2; i++) {
    const answer = await chat(key);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.headers.get("x-sluice-decision"), "degraded");
    assert.equal(answer.body.model, "m-cheap");
    assert.equal(upstream.last.json.model, "m-cheap");
  }
  const refused = await chat(key);
  assert.equal(refused.status, 429);
  assert.equal(refused.body.error.policy, "daily");
  assert.equal((await chat(key, { json: { ...hello, max_tokens: 5000 } })).status, 400, "the checks are made again");
  assert.equal((await policy(key, "daily")).used, 1);
});

test("a job within quota runs at once, is charged once and kept with its answer", async () => {
  const { key, user_id } = await caller();
  for (const send of [query, chat]) {
    const answer = await send(key, later);
    assert.equal(answer.status, 202, answer.text);
    assert.equal(answer.headers.get("preference-applied"), "respond-async");
    const job = await ended(key, answer.body.id);
    assert.equal(job.result.object, "chat.completion");
    assert.deepEqual([job.error, job.attempts], [null, 1]);
    assert.equal(upstream.last.headers.authorization, "Bearer upstream-secret");
    assert.ok(!upstream.last.body.includes(key));
  }
  await settled(key, 2);
  await eventually(async () => assert.deepEqual(await gateway.usageRows(user_id).then((r) => r.map((d) => [d.calls, d.prompt_tokens])), [[2, 14]]));
  const told = await eventually(async () => {
    const { data } = (await gateway.call("/api/notifications", { key })).body;
    assert.equal(data.length, 2);
    return data;
  });
  assert.deepEqual(told.map((n) => [n.type, n.data.status]), [["job.completed", "succeeded"], ["job.completed", "succeeded"]]);
});

test("a waiting job runs when the quota is back", async () => {
  const { key, user_id } = await caller({ daily_limit: 1, spent: 1 });
  const { id } = (await query(key)).body;
  upstream.requests = [];
  await quotaIsBack(user_id, id);
  await deliver([look(id)]);
  assert.equal((await ended(key, id)).result.object, "chat.completion");
  assert.equal(upstream.count(), 1);
  await eventually(async () => assert.equal((await policy(key, "daily")).used, 1));
});

test("waiting for quota is no attempt, however often, and never runs the job", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1 });
  const { id } = (await query(key)).body;
  upstream.requests = [];
  for (let i = 0; i < 5; i++) {
    await change(id, "not_before_ms = 0");
    const { outcome, retryMessages, explicitAcks } = await deliver([look(id)]);
    assert.deepEqual([outcome, retryMessages.length, explicitAcks.length], ["ok", 0, 1]);
    const { status, attempts, not_before_ms, claim } = await row(id);
    assert.deepEqual([status, attempts, claim], ["queued", 0, null]);
    assert.ok(not_before_ms > Date.now());
  }
  assert.equal(upstream.count(), 0);
});

test("the same message delivered many times runs the job once", async () => {
  const { key } = await caller();
  upstream.always({ usage, delay: 300 });
  const { id } = (await query(key, later)).body;
  await Promise.all([deliver([look(id), look(id), look(id)]), deliver([look(id)])]);
  await ended(key, id);
  await deliver([look(id), look(id)]);
  assert.equal(upstream.count(), 1);
  await settled(key, 1);
});

test("thirty jobs for ten calls: ten run, twenty wait, nobody passes their limit", async () => {
  const { key, user_id } = await caller({ daily_limit: 10, spent: 10 });
  const ids = [];
  for (let i = 0; i < 30; i++) ids.push((await query(key)).body.id);
  upstream.requests = [];
  await quotaIsBack(user_id, ids[0]);
  await gateway.d1.prepare("UPDATE jobs SET not_before_ms = 0 WHERE user_id = ?").bind(user_id).run();
  for (let i = 0; i < 30; i += 10) await deliver(ids.slice(i, i + 10).map((id) => look(id)));
  const { data } = (await gateway.call("/api/jobs?limit=200", { key })).body;
  const count = (status) => data.filter((job) => job.status === status).length;
  assert.deepEqual([count("succeeded"), count("queued")], [10, 20]);
  assert.equal(upstream.count(), 10);
  await settled(key, 10);
  const sum = (name, rows) => rows.reduce((total, day) => total + day[name], 0);
  await eventually(async () => {
    const rows = await gateway.usageRows(user_id);
    assert.deepEqual([sum("queued", rows), sum("rejected", rows)], [30, 0], "a job that waits on is no refused call");
  });
});

test("what is poison ends with a status or is written down, and spoils nothing else", async () => {
  const good = await Promise.all(Array.from({ length: 7 }, () => caller()));
  const gone = await caller();
  const revoked = await caller();
  upstream.always({ usage });
  await gateway.fault({ binding: "DB", mode: "error", match: "LEFT JOIN api_keys" });
  const submit = async ({ key }) => (await query(key, later)).body.id;
  const ids = await Promise.all(good.map(submit));
  const [lost, dead] = [await submit(gone), await submit(revoked)];
  await gateway.d1.prepare("DELETE FROM users WHERE user_id = ?").bind(gone.user_id).run();
  await gateway.d1.prepare("UPDATE api_keys SET revoked_at_ms = 1 WHERE user_id = ?").bind(revoked.user_id).run();
  await gateway.noFaults();
  const { outcome } = await deliver(["no json {", ...ids.map((id) => look(id)), look(lost), look(dead), look("job_unknown")]);
  assert.equal(outcome, "ok");
  await Promise.all(ids.map((id, i) => ended(good[i].key, id)));
  assert.equal(upstream.count(), 7);
  for (const { key } of good) await settled(key, 1);
  const why = async (id) => [(await row(id)).status, JSON.parse((await row(id)).error).code];
  assert.deepEqual(await why(lost), ["failed", "user_deleted"]);
  assert.deepEqual(await why(dead), ["failed", "key_revoked"]);
  const seen = (await gateway.admin("/admin/jobs?status=failed")).body;
  assert.ok(seen.data.some((job) => job.id === dead && job.user_id === revoked.user_id));
  assert.ok(seen.dead_letters.some((letter) => letter.body === "no json {"));
});

test("a job that the platform gave up is failed for all to see, and the operator may retry it", async () => {
  const { key } = await caller();
  await gateway.fault({ binding: "DB", mode: "error", match: "LEFT JOIN api_keys", times: 1 });
  const { id } = (await query(key, later)).body;
  await eventually(async () => assert.ok((await row(id)).ticket >= 1));
  await deliver([look(id)], "sluice-tasks-dead");
  const failed = await ended(key, id, "failed");
  assert.equal(failed.error.code, "dead_lettered");
  assert.equal(upstream.count(), 0);
  const answer = await gateway.admin(`/admin/jobs/${id}/retry`, { method: "POST" });
  assert.equal(answer.status, 200, answer.text);
  await ended(key, id);
  await settled(key, 1);
  assert.equal((await gateway.admin(`/admin/jobs/${id}/retry`, { method: "POST" })).status, 409);
  assert.equal((await gateway.admin("/admin/jobs/job_none/retry", { method: "POST" })).status, 404);
  const audit = (await gateway.admin("/admin/audit")).body.data;
  assert.ok(audit.some((entry) => entry.action === "job.retry" && entry.target === id));
});

test("the operator calls a waiting job off, once however often they ask; one that came to its end is a 409", async () => {
  const { key, user_id } = await caller({ daily_limit: 1, spent: 1 });
  const { id } = (await query(key)).body;
  upstream.requests = [];
  const ask = (job, what) => gateway.admin(`/admin/jobs/${job}/${what}`, { method: "POST" });
  const answers = await Promise.all([ask(id, "cancel"), ask(id, "cancel")]);
  answers.push(await ask(id, "cancel"));
  for (const { status, body, text } of answers) assert.deepEqual([status, body.status, body.user_id], [200, "cancelled", user_id], text);
  const told = async (job) => (await gateway.admin("/admin/audit?limit=200")).body.data.filter((entry) => entry.action === "job.cancel" && entry.target === job);
  assert.equal((await told(id)).length, 1);
  await quotaIsBack(user_id, id);
  await deliver([look(id)]);
  assert.deepEqual([(await show(key, id)).status, upstream.count()], ["cancelled", 0]);
  assert.equal((await ask(id, "retry")).status, 409);

  const other = await caller();
  const done = (await query(other.key, later)).body.id;
  await ended(other.key, done);
  const late = await ask(done, "cancel");
  assert.deepEqual([late.status, late.body.error.code], [409, "conflict"]);
  assert.equal((await show(other.key, done)).status, "succeeded");
  assert.equal((await told(done)).length, 0);
  assert.equal((await ask("job_none", "cancel")).status, 404);
});

test("a queue that fails or hangs is an honest 503 within 3 s that leaves nothing behind", async () => {
  for (const mode of ["error", "hang"]) {
    const { key, user_id } = await caller({ daily_limit: 1, spent: 1 });
    await gateway.fault({ binding: "TASK_QUEUE", mode, ms: 30_000 });
    const began = Date.now();
    const answer = await query(key);
    assert.ok(Date.now() - began < 3000);
    assert.equal(answer.status, 503, answer.text);
    assert.match(answer.headers.get("retry-after"), /^[1-9]/);
    await gateway.noFaults();
    await eventually(async () => {
      const { n } = await gateway.d1.prepare("SELECT COUNT(*) AS n FROM jobs WHERE user_id = ?").bind(user_id).first();
      assert.equal(n, 0);
    });
    assert.equal((await policy(key, "daily")).used, 1);
  }
});

test("a ledger that fails is an honest 503 too", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1 });
  await gateway.fault({ binding: "DB", mode: "error", match: "INSERT INTO jobs" });
  assert.equal((await query(key)).status, 503);
  await gateway.noFaults();
  assert.deepEqual((await gateway.call("/api/jobs", { key })).body.data, []);
});

test("a body too large for the queue is never promised", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1, monthly_token_limit: 10_000_000 });
  const json = { prompt: "x".repeat(200_000), model: "m-small" };
  assert.equal((await query(key, { json })).status, 429);
  const free = await caller({ monthly_token_limit: 10_000_000 });
  assert.equal((await query(free.key, { json, ...later })).status, 413);
});

test("a wait longer than a message can be delayed is chained", async () => {
  const { key } = await caller({ daily_limit: null, monthly_token_limit: 30, max_tokens_per_request: 10 });
  for (let i = 0; i < 3 && (await chat(key)).status === 200; i++) await eventually(async () => assert.equal((await policy(key, "monthly-tokens")).reserved, 0));
  const answer = await query(key);
  assert.equal(answer.status, 202, answer.text);
  const { id } = answer.body;
  const month = new Date(Date.UTC(new Date().getUTCFullYear(), new Date().getUTCMonth() + 1));
  assert.ok(Date.parse(answer.body.not_before) >= month.getTime());
  await change(id, `not_before_ms = ${Date.now() + 30 * 3_600_000}, expires_at_ms = ${Date.now() + 300 * 3_600_000}`);
  await gateway.resetCalls();
  const early = look(id);
  const { explicitAcks, retryMessages } = await deliver([early]);
  assert.deepEqual([explicitAcks.length, retryMessages.length], [1, 0]);
  assert.equal((await gateway.calls())["TASK_QUEUE.send"], 1);
  assert.deepEqual(await row(id).then((r) => [r.status, r.attempts, r.ticket]), ["queued", 0, early.ticket + 1]);
});

test("of many at once, each that is promised has exactly one message", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1, over_quota: { strategy: "queue", queue_limit: null } });
  await gateway.resetCalls();
  const answers = await Promise.all(Array.from({ length: 60 }, () => query(key)));
  assert.ok(answers.every((a) => a.status === 202));
  assert.equal(new Set(answers.map((a) => a.body.id)).size, 60);
  assert.equal((await gateway.calls())["TASK_QUEUE.send"], 60);
});

test("one user may have so many jobs waiting and no more, also at the same time", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1, over_quota: { strategy: "queue", queue_limit: 3 } });
  const answers = await Promise.all(Array.from({ length: 12 }, () => query(key)));
  const count = (status) => answers.filter((a) => a.status === status).length;
  assert.deepEqual([count(202), count(429)], [3, 9]);
  const { data } = (await gateway.call("/api/jobs", { key })).body;
  assert.equal((await gateway.call(`/api/jobs/${data[0].id}`, { key, method: "DELETE" })).status, 200);
  assert.equal((await query(key)).status, 202);
  const none = await caller({ over_quota: { strategy: "queue", queue_limit: 0 } });
  const full = await chat(none.key, later);
  assert.equal(full.status, 429);
  assert.equal(full.body.error.code, "queue_full");
});

test("a job is its user's alone, comes in pages and can be taken back", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1 });
  const stranger = await caller();
  const ids = [];
  for (let i = 0; i < 3; i++) ids.push((await query(key)).body.id);
  for (const method of ["GET", "DELETE"]) assert.equal((await gateway.call(`/api/jobs/${ids[0]}`, { key: stranger.key, method })).status, 404);
  const first = (await gateway.call("/api/jobs?limit=2", { key })).body;
  const second = (await gateway.call(`/api/jobs?limit=2&cursor=${first.next_cursor}`, { key })).body;
  assert.deepEqual([...first.data, ...second.data].map((job) => job.id).sort(), [...ids].sort());
  assert.equal(second.next_cursor, null);
  assert.equal((await gateway.call("/api/jobs?limit=0", { key })).status, 400);
  for (let i = 0; i < 2; i++) {
    const taken = await gateway.call(`/api/jobs/${ids[0]}`, { key, method: "DELETE" });
    assert.deepEqual([taken.status, taken.body.status], [200, "cancelled"]);
  }
  upstream.requests = [];
  await deliver([look(ids[0])]);
  assert.equal(upstream.count(), 0);
  const done = (await query(stranger.key, later)).body.id;
  await ended(stranger.key, done);
  assert.equal((await gateway.call(`/api/jobs/${done}`, { key: stranger.key, method: "DELETE" })).status, 409);
  assert.equal((await gateway.call("/api/jobs", { key, method: "POST" })).status, 405);
});

test("a job outlives the rotation of its key as long as the old key does", async () => {
  const { key, user_id } = await caller({ daily_limit: 1, spent: 1 });
  const { id } = (await query(key)).body;
  const { key_id } = (await gateway.admin(`/admin/users/${user_id}/keys`)).body.data[0];
  assert.equal((await gateway.admin(`/admin/keys/${key_id}/rotate`, { json: { overlap_seconds: 86_400 } })).status, 201);
  await quotaIsBack(user_id, id);
  await deliver([look(id)]);
  assert.equal((await row(id)).status, "succeeded");
});

test("one that is taken back while it runs keeps no result and pays for what it used", async () => {
  const { key } = await caller();
  upstream.always({ usage, delay: 700 });
  const { id } = (await query(key, later)).body;
  await upstream.until(() => upstream.count() === 1);
  assert.equal((await gateway.call(`/api/jobs/${id}`, { key, method: "DELETE" })).body.status, "cancelled");
  await settled(key, 1);
  const job = await show(key, id);
  assert.deepEqual([job.status, job.result], ["cancelled", null]);
});

test("a provider's failure is given back and tried again; its refusal is final", async () => {
  const { key } = await caller();
  upstream.next({ status: 500 });
  const { id } = (await query(key, later)).body;
  await eventually(async () => assert.deepEqual(await row(id).then((r) => [r.status, r.round, r.attempts]), ["queued", 1, 1]));
  await settled(key, 0);
  const { not_before_ms } = await row(id);
  assert.ok(not_before_ms - Date.now() > 20_000, "not at once");
  await change(id, "not_before_ms = 0");
  await deliver([look(id)]);
  await ended(key, id);
  assert.equal(upstream.count(), 2);
  await settled(key, 1);

  upstream.next({ status: 400, body: { error: { message: "no such tool" } } });
  const bad = (await query(key, later)).body.id;
  const job = await ended(key, bad, "failed");
  assert.deepEqual([job.error.code, job.error.message], ["upstream_rejected", "no such tool"]);
  await settled(key, 1);
});

test("a provider that fails for good ends the job after five attempts", async () => {
  const { key } = await caller();
  upstream.always({ status: 503 });
  const { id } = (await query(key, later)).body;
  for (let attempt = 1; attempt < 5; attempt++) {
    await eventually(async () => assert.deepEqual(await row(id).then((r) => [r.status, r.attempts]), ["queued", attempt]));
    await change(id, "not_before_ms = 0");
    await deliver([look(id)]);
  }
  const job = await ended(key, id, "failed");
  assert.deepEqual([job.attempts, job.error.code], [5, "server_is_overloaded"]);
  await settled(key, 0);
});

test("an answer the ledger does not take is kept, and the provider not asked again", async () => {
  const { key } = await caller();
  await gateway.fault({ binding: "DB", mode: "error", match: "prompt_tokens = ?6", times: 4 });
  const { id } = (await query(key, later)).body;
  await upstream.until(() => upstream.count() === 1);
  await eventually(async () => assert.ok(await gateway.kv.get(`job:${id}:0`)));
  await eventually(async () => assert.equal((await row(id)).ticket, 2));
  await change(id, "lease_until_ms = 0");
  await deliver([look(id)]);
  const job = await ended(key, id);
  assert.equal(job.result.object, "chat.completion");
  assert.equal(upstream.count(), 1);
  await settled(key, 1);
});

test("a consumer that ends in the middle is charged once, though the provider is asked again", async () => {
  const { key } = await caller();
  upstream.next({ hang: true });
  const { id } = (await query(key, later)).body;
  await upstream.until(() => upstream.count() === 1);
  await change(id, "lease_until_ms = 0");
  await deliver([look(id)]);
  await ended(key, id);
  assert.equal(upstream.count(), 2);
  upstream.server.closeAllConnections();
  await new Promise((resolve) => setTimeout(resolve, 300));
  await settled(key, 1);
  assert.equal((await show(key, id)).status, "succeeded", "what the first consumer hears late changes nothing");
});

test("a runtime that is killed loses no job and doubles none", async () => {
  const { key, user_id } = await caller({ daily_limit: null });
  upstream.next({ hang: true });
  const running = (await query(key, later)).body.id;
  await upstream.until(() => upstream.count() === 1);
  await gateway.kill9();
  upstream.server.closeAllConnections();
  await gateway.restart({ vars: { CLOCK_OFFSET_MS: String(40 * 60_000) } });
  await gateway.scheduled();
  await ended(key, running);
  assert.equal(upstream.count(), 2);
  await eventually(async () => {
    const days = await gateway.usageRows(user_id);
    const sum = (field) => days.reduce((total, day) => total + day[field], 0);
    assert.deepEqual([sum("calls"), sum("prompt_tokens"), sum("completion_tokens")], [1, 7, 5]);
  });
  await gateway.restart({ vars: { CLOCK_OFFSET_MS: "0" } });
});

const awaits = [
  ["DB", "LEFT JOIN api_keys"],
  ["DB", "SET status = 'running'"],
  ["DB", "FROM models"],
  ["ACCOUNTS", '"admit"'],
  ["DB", "prompt_tokens = ?6"],
  ["ACCOUNTS", '"settle"'],
  ["DB", "attempts, result, error FROM jobs WHERE job_id = ?1"],
  ["NOTIFY_QUEUE", "job.completed"],
  ["DB", "SET closed = 1"],
  ["TASK_QUEUE", "faults"],
];
for (const mode of ["error", "commit-then-error", "hang"]) {
  test(`each await of the consumer may fail (${mode}): one charge, one answer`, { timeout: 120_000 }, async () => {
    const callers = await Promise.all(Array.from({ length: 6 }, () => caller()));
    await gateway.faults(awaits.map(([binding, match]) => ({ binding, match, mode, times: 1, ms: 12_000 })));
    const ids = await Promise.all(callers.map(async ({ key }) => (await query(key, later)).body.id));
    for (const [i, { key, user_id }] of callers.entries()) {
      const job = await ended(key, ids[i], "succeeded", 90_000);
      assert.equal(job.result.object, "chat.completion");
      await settled(key, 1);
      await eventually(async () => assert.equal((await row(ids[i])).closed, 1), 40_000);
      await eventually(async () => {
        const told = (await gateway.call("/api/notifications", { key })).body.data;
        assert.equal(told.length, 1);
      }, 20_000);
      assert.ok(user_id);
    }
    assert.ok(upstream.count() <= 7, `${upstream.count()} calls for 6 jobs`);
  });
}

test("old jobs, and rows whose message was never accepted, are deleted by the clock", async () => {
  const { key } = await caller();
  const done = (await query(key, later)).body.id;
  await ended(key, done);
  await eventually(async () => assert.equal((await row(done)).closed, 1));
  const waiting = await caller({ daily_limit: 1, spent: 1 });
  const kept = (await query(waiting.key)).body.id;
  const unsent = (await query(waiting.key)).body.id;
  await eventually(async () => assert.equal((await row(unsent)).ticket, 1));
  await change(unsent, "ticket = 0, not_before_ms = 1");
  await change(done, "finished_at_ms = 1");
  await gateway.scheduled();
  assert.deepEqual([await row(done), await row(unsent)], [null, null]);
  assert.ok(await row(kept));
});

test("a job whose time ran out is expired, and charged nothing", async () => {
  const { key } = await caller({ daily_limit: 1, spent: 1 });
  const { id } = (await query(key)).body;
  await change(id, "expires_at_ms = 1");
  await deliver([look(id)]);
  const job = await ended(key, id, "expired");
  assert.equal(job.error.code, "job_expired");
  assert.equal((await policy(key, "daily")).used, 1);
});
