// What Prometheus and the log are told agrees with what was sent.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import parse from "parse-prometheus-text-format";
import { inRoot } from "../scripts/lib/paths.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "a very private question" }] };
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, analytics: true });
  await gateway.keepToDocument();
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const chat = (key, json = hello, rest = {}) => gateway.call("/v1/chat/completions", { key, json, ...rest });

async function scrape() {
  const answer = await gateway.admin("/metrics");
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  return parse(answer.text);
}

/** The value of the one series with these labels; undefined if there is none. */
function value(families, name, labels = {}) {
  const family = families.find((one) => one.name === name);
  const fits = (metric) => Object.entries(labels).every(([label, text]) => metric.labels?.[label] === text);
  const found = family.metrics.filter(fits);
  assert.ok(found.length <= 1, `${found.length} series of ${name}`);
  return found[0] && Number(found[0].value);
}

const seriesOf = (families) => families.flatMap((family) => family.metrics.map((metric) => `${family.name}${JSON.stringify(metric.labels ?? {})}`)).sort();

async function caller(plan = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
  return { user_id, plan_id, key: await gateway.createKey(user_id) };
}

const day = (ago) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10);
const usage = (plan_id, date, users, calls) =>
  gateway.d1
    .prepare(
      `INSERT INTO daily_usage (user_id, date, plan_id, calls, rejected, refused_by)
       SELECT 'random-' || value, ?2, ?1, ?4, 1, '{"daily":1}' FROM json_each(?3)`,
    )
    .bind(plan_id, date, JSON.stringify(Array.from({ length: users }, (_, i) => `${date}-${i}-${Math.random()}`)), calls)
    .run();

test("only the operator reads the metrics", async () => {
  const { key } = await caller();
  assert.equal((await gateway.call("/metrics")).status, 401);
  assert.equal((await gateway.call("/metrics", { key: "wrong" })).status, 401);
  assert.equal((await gateway.call("/metrics", { key })).status, 403);
  assert.equal((await gateway.admin("/metrics", { method: "POST" })).status, 405);
});

test("100 calls of which 60 are refused read 100 and 60", async () => {
  const { key, plan_id } = await caller({ daily_limit: 40 });
  upstream.always({ usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
  const answers = [];
  for (let i = 0; i < 10; i++) answers.push(...(await Promise.all(Array.from({ length: 10 }, () => chat(key)))));
  assert.equal(answers.filter((answer) => answer.status === 429).length, 60);
  await eventually(async () => {
    const families = await scrape();
    assert.equal(value(families, "sluice_calls_total", { plan: plan_id }), 100);
    assert.equal(value(families, "sluice_refused_total", { plan: plan_id, policy: "daily", reason: "limit" }), 60);
    assert.equal(value(families, "sluice_tokens_total", { plan: plan_id, kind: "prompt" }), 280);
    assert.equal(value(families, "sluice_tokens_total", { plan: plan_id, kind: "completion" }), 200);
  });
  await gateway.forget();
  const families = await scrape();
  assert.equal(value(families, "sluice_calls_total", { plan: plan_id }), 100, "no number comes from an isolate's memory");
});

test("a call that becomes a job is queued and not refused, and one that is refused instead is, however it was asked", async () => {
  const { key, plan_id } = await caller({ daily_limit: 1, over_quota: { strategy: "queue", queue_limit: 3 } });
  const later = { headers: { prefer: "respond-async" } };
  const query = (rest = {}) => gateway.call("/api/ai/query", { key, json: { prompt: "hello", model: "m-small" }, ...rest });
  const statuses = [];
  for (const ask of [query, query, () => query(later), () => chat(key, hello, later), query, () => query(later), () => chat(key), () => chat(key, hello, later)]) statuses.push((await ask()).status);
  assert.deepEqual(statuses, [200, 202, 202, 202, 429, 429, 429, 429]);
  await eventually(async () => {
    const families = await scrape();
    assert.equal(value(families, "sluice_queued_total", { plan: plan_id }), 3);
    assert.equal(value(families, "sluice_refused_total", { plan: plan_id, policy: "daily", reason: "limit" }), 4);
    assert.equal(value(families, "sluice_calls_total", { plan: plan_id }), 5);
  });
});

test("a call that could have passed and became a job by its caller's wish is queued", async () => {
  const { key, plan_id } = await caller({ daily_limit: 10 });
  assert.equal((await chat(key, hello, { headers: { prefer: "respond-async" } })).status, 202);
  await eventually(async () => assert.equal(value(await scrape(), "sluice_queued_total", { plan: plan_id }), 1));
});

test("what a plan that only watches would have refused is counted as that, and as passed", async () => {
  const { key, plan_id } = await caller({ daily_limit: 1, shadow: true });
  for (let i = 0; i < 3; i++) assert.equal((await chat(key)).status, 200);
  await eventually(async () => {
    const families = await scrape();
    assert.equal(value(families, "sluice_shadow_refused_total", { plan: plan_id, policy: "daily", reason: "limit" }), 2);
    assert.equal(value(families, "sluice_refused_total", { plan: plan_id }), undefined);
    assert.equal(value(families, "sluice_calls_total", { plan: plan_id }), 3);
  });
  const { endpoints } = (await gateway.admin("/admin/stats")).body;
  assert.ok(!endpoints.some(({ name }) => name.startsWith("shadow")));
});

test("names and types are those of Prometheus", async () => {
  for (const family of await scrape()) {
    assert.match(family.name, /^sluice_[a-z_]+$/);
    assert.ok(family.help.length > 0);
    assert.equal(family.type === "COUNTER", family.name.endsWith("_total"), family.name);
  }
});

/** A histogram of one series: its buckets' counts in order, its count and its sum. */
function histogram(families, name) {
  const family = families.find((one) => one.name === name);
  assert.equal(family.type, "HISTOGRAM");
  assert.equal(family.metrics.length, 1);
  const [{ buckets, count, sum }] = family.metrics;
  const ends = Object.keys(buckets).sort((a, b) => Number(a.replace("+Inf", "Infinity")) - Number(b.replace("+Inf", "Infinity")));
  assert.equal(ends.at(-1), "+Inf");
  const counts = ends.map((end) => Number(buckets[end]));
  assert.deepEqual(counts, counts.toSorted((a, b) => a - b), "a bucket holds all below it");
  assert.equal(counts.at(-1), Number(count));
  const upTo = (seconds) => Number(buckets[ends.findLast((end) => Number(end) <= seconds)] ?? 0);
  return { count: Number(count), sum: Number(sum), upTo };
}

const waits = (families) => ["sluice_upstream_latency_seconds", "sluice_account_latency_seconds"].map((name) => histogram(families, name));

test("what calls waited for is counted once each, in the bucket it belongs to", async () => {
  const { key, user_id } = await caller({ daily_limit: 14 });
  const [upstreamBefore, accountBefore] = waits(await scrape());
  const slow = { delay: 600, usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } };
  upstream.next(...Array(4).fill(slow));
  const answers = await Promise.all(Array.from({ length: 4 }, () => chat(key)));
  for (let i = 0; i < 5; i++) answers.push(await chat(key));
  for (let i = 0; i < 5; i++) answers.push(await chat(key, { ...hello, stream: true }));
  for (let i = 0; i < 3; i++) assert.equal((await chat(key)).status, 429);
  assert.ok(answers.every((answer) => answer.status === 200));
  const check = async () => {
    const [upstreamAfter, accountAfter] = waits(await scrape());
    const more = (after, before, upTo) => after.upTo(upTo) - before.upTo(upTo);
    assert.equal(upstreamAfter.count - upstreamBefore.count, 14);
    assert.equal(accountAfter.count - accountBefore.count, 14);
    assert.equal(more(upstreamAfter, upstreamBefore, 2.5) - more(upstreamAfter, upstreamBefore, 0.5), 4, "the slow ones");
    const waited = upstreamAfter.sum - upstreamBefore.sum;
    assert.ok(waited >= 4 * 0.6 && waited < 14 * 1.5, `${waited} s`);
    assert.ok(accountAfter.sum >= accountBefore.sum);
  };
  await eventually(check);
  // Neither a new isolate, nor an account that was moved or has lost its storage, counts them again.
  await gateway.forget();
  await gateway.account(user_id).evict();
  assert.equal((await chat(key)).status, 429);
  await eventually(check);
  await gateway.account(user_id).wipe();
  await gateway.admin("/admin/reconcile", { json: { user_id } });
  await eventually(check);
});

test("an account that lost its storage goes on counting where the ledger stands", async () => {
  const { key, user_id } = await caller();
  assert.equal((await chat(key)).status, 200);
  const row = async () => JSON.parse((await gateway.usageRows(user_id))[0]?.latency ?? "{}");
  const calls = (counts = {}) => Object.entries(counts).reduce((sum, [bucket, n]) => sum + (bucket === "sum" ? 0 : n), 0);
  await eventually(async () => assert.equal(calls((await row()).upstream), 1));
  await gateway.account(user_id).wipe();
  assert.equal((await chat(key)).status, 200);
  await eventually(async () => assert.equal(calls((await row()).upstream), 2));
});

test("every call is a point in Analytics Engine, and one that is refused fails no call", async () => {
  const { key, plan_id } = await caller({ daily_limit: 1 });
  await gateway.points();
  assert.equal((await chat(key)).status, 200);
  assert.equal((await chat(key)).status, 429);
  const points = (await gateway.points()).filter((point) => point.indexes[0] === plan_id);
  assert.deepEqual(points.map((point) => point.blobs), [["/v1/chat/completions", "allowed", ""], ["/v1/chat/completions", "refused", "daily"]]);
  assert.deepEqual(points.map((point) => point.doubles[0]), [200, 429]);
  assert.ok(points.every((point) => point.doubles.length === 2 && point.doubles[1] >= 0 && point.doubles[1] < 60_000));
  await gateway.faults([{ binding: "ANALYTICS", mode: "error" }]);
  assert.equal((await chat(key)).status, 429);
  await gateway.noFaults();
});

test("10,000 users, and paths and models nobody knows, add no series", async () => {
  const { key, plan_id } = await caller({ allowed_models: ["m-small"] });
  await chat(key);
  await chat(key, { ...hello, model: "m-big" });
  await usage(plan_id, day(0), 1, 1);
  const of = (families, name) => value(families, name, { plan: plan_id });
  const before = await eventually(async () => {
    const families = await scrape();
    assert.equal(of(families, "sluice_calls_total"), 4);
    return families;
  });
  await usage(plan_id, day(0), 10_000, 1);
  const random = () => Math.random().toString(36).slice(2);
  for (let i = 0; i < 40; i++) {
    await chat(key, { ...hello, model: random() });
    await gateway.call(`/v1/${random()}`, { key });
    await gateway.call(`/${random()}/${random()}`, { key });
  }
  const after = await eventually(async () => {
    const families = await scrape();
    assert.ok(of(families, "sluice_calls_total") >= 20_000);
    return families;
  });
  assert.deepEqual(seriesOf(after), seriesOf(before));
});

test("a counter never falls, and goes on when old days are folded and deleted", async () => {
  const { plan_id } = await caller();
  await usage(plan_id, day(0), 1, 5);
  await usage(plan_id, day(20), 2, 5);
  await usage(plan_id, day(500), 3, 5);
  const calls = async () => value(await scrape(), "sluice_calls_total", { plan: plan_id });
  assert.equal(await calls(), 36);
  await gateway.scheduled();
  assert.equal(await calls(), 36);
  const dates = await gateway.d1.prepare("SELECT date FROM daily_usage WHERE plan_id = ? ORDER BY date").bind(plan_id).all();
  assert.deepEqual(dates.results.map((row) => row.date), [day(20), day(20), day(0)]);
  await gateway.d1.prepare("UPDATE daily_usage SET calls = 0 WHERE plan_id = ? AND date = ?").bind(plan_id, day(0)).run();
  assert.equal(await calls(), 36);
  await gateway.scheduled();
  assert.equal(await calls(), 36);
});

test("waits go on when old days are folded and deleted", async () => {
  const { plan_id } = await caller();
  await usage(plan_id, day(15), 2, 5);
  await gateway.d1.prepare("UPDATE daily_usage SET latency = ? WHERE plan_id = ?").bind('{"upstream":{"10":3,"inf":1,"sum":200000}}', plan_id).run();
  const before = waits(await scrape())[0];
  assert.ok(before.count >= 8 && before.sum >= 400);
  await gateway.scheduled();
  await gateway.d1.prepare("DELETE FROM daily_usage WHERE plan_id = ?").bind(plan_id).run();
  const after = waits(await scrape())[0];
  assert.deepEqual([after.count, after.sum, after.upTo(0.01)], [before.count, before.sum, before.upTo(0.01)]);
});

test("the ledger being out is a 503 and not a reading", async () => {
  await gateway.faults([{ binding: "DB", mode: "error" }]);
  assert.equal((await gateway.admin("/metrics")).status, 503);
  await gateway.noFaults();
});

test("the dashboard uses names that are there", async () => {
  const names = new Set((await scrape()).map((family) => family.name));
  const dashboard = readFileSync(inRoot("docs/grafana.json"), "utf8");
  const used = new Set(dashboard.match(/sluice_[a-z_]+/g).map((name) => name.replace(/_bucket$/, "")));
  assert.ok(used.size >= 10);
  for (const name of used) assert.ok(names.has(name), name);
});

test("every call is one line in the log, without secrets or content", async () => {
  const { key, plan_id, user_id } = await caller({ daily_limit: 1 });
  const first = await chat(key);
  const second = await chat(key);
  const made_up = await gateway.call("/somebody/made/this-up", { key });
  await eventually(async () => {
    const lines = gateway.logs().split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
    const of = (answer) => lines.filter((line) => line.event === "call" && line.request_id === answer.headers.get("x-request-id"));
    assert.equal(of(first).length, 1);
    const [allowed] = of(first);
    assert.deepEqual([allowed.route, allowed.method, allowed.status, allowed.decision, allowed.plan, allowed.policy], ["/v1/chat/completions", "POST", 200, "allowed", plan_id, null]);
    assert.equal(typeof allowed.ms, "number");
    const [refused] = of(second);
    assert.deepEqual([refused.status, refused.decision, refused.policy], [429, "refused", "daily"]);
    assert.equal(of(made_up)[0].route, "other");
  });
  const logs = gateway.logs();
  for (const secret of [key, gateway.adminToken, "upstream-secret", "private question", "made/this-up", user_id]) assert.ok(!logs.includes(secret), secret);
});

test("whoever asks is told what took how long", async () => {
  const { key } = await caller();
  const asked = await chat(key, hello, { headers: { "x-sluice-timing": "1" } });
  assert.match(asked.headers.get("server-timing"), /^account;dur=\d+, upstream;dur=\d+, total;dur=\d+$/);
  assert.equal((await chat(key)).headers.get("server-timing"), null);
});
