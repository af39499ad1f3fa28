// What users are told: once, by inbox and webhook, and without any call waiting for it.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, afterEach, before, test } from "node:test";
import { Webhook } from "standardwebhooks";
import { secrets, startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
let gateway, upstream, receiver;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
  receiver = await startReceiver();
  gateway = await startGateway({ upstream });
  await gateway.keepToDocument();
});
afterEach(async () => {
  await gateway.noFaults();
  receiver.answer = () => ({ status: 204 });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
  await receiver.stop();
});

/** A server that checks every signature with another implementation of the scheme, and answers as it is told. */
async function startReceiver() {
  const receiver = { got: [], answer: () => ({ status: 204 }) };
  const hook = new Webhook(secrets.WEBHOOK_SECRET);
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = Buffer.concat(parts).toString();
    const record = { path: request.url, headers: request.headers, id: request.headers["webhook-id"], at: Date.now() };
    try {
      record.payload = record.path === "/email" ? JSON.parse(body) : hook.verify(body, request.headers);
    } catch (error) {
      record.problem = String(error);
    }
    receiver.got.push(record);
    const { status, headers, hang } = receiver.answer(record);
    if (!hang) response.writeHead(status, headers).end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  receiver.url = `http://127.0.0.1:${server.address().port}`;
  receiver.of = (path) => receiver.got.filter((record) => record.path === path);
  receiver.stop = () => (server.closeAllConnections(), new Promise((resolve) => server.close(resolve)));
  return receiver;
}

const chat = (key) => gateway.call("/v1/chat/completions", { key, json: hello });
const inbox = async (key, query = "") => (await gateway.call(`/api/notifications${query}`, { key })).body;
const delivery = (id, channel = "webhook") => gateway.d1.prepare("SELECT * FROM deliveries WHERE notification_id = ? AND channel = ?").bind(id, channel).first();
const user = (id) => gateway.d1.prepare("SELECT * FROM users WHERE user_id = ?").bind(id).first();

async function deliver(bodies, queue = "sluice-notify") {
  const messages = bodies.map((body, i) => ({ id: `n${Math.random()}${i}`, timestamp: new Date(), attempts: 1, body: typeof body === "object" ? JSON.stringify(body) : body }));
  return (await gateway.mf.getWorker()).queue(queue, messages);
}

async function caller(plan = {}, fields = {}) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await gateway.createPlan({ plan_id, daily_limit: 10, over_quota: { strategy: "queue" }, ...plan });
  const path = `/${plan_id}`;
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id, webhook_url: receiver.url + path, ...fields });
  return { user_id, plan_id, path, key: await gateway.createKey(user_id) };
}

/** A notice of a job's end, as the queue carries it. */
const news = (user_id, id = `ntf_${Math.random().toString(16).slice(2)}`) => ({ v: 1, notice: { id, user: user_id, type: "job.completed", at: Date.now(), data: { job_id: "job_1", status: "succeeded" } } });

test("fifty calls at once over two thresholds: two notices, two webhooks, no more", async () => {
  const { key, path, user_id } = await caller({ daily_limit: 100 });
  const began = Date.now();
  for (let i = 0; i < 79; i += 10) await Promise.all(Array.from({ length: Math.min(10, 79 - i) }, () => chat(key)));
  assert.equal((await inbox(key)).data.length, 0);
  await Promise.all(Array.from({ length: 50 }, () => chat(key)));
  const data = await eventually(async () => {
    const { data } = await inbox(key);
    assert.equal(data.length, 2);
    assert.equal(receiver.of(path).length, 2);
    return data;
  });
  await new Promise((resolve) => setTimeout(resolve, 1500));
  assert.equal((await inbox(key)).data.length, 2);
  const hooks = receiver.of(path);
  assert.equal(hooks.length, 2);
  assert.deepEqual(hooks.map((hook) => hook.problem), [undefined, undefined]);
  const midnight = new Date(new Date().setUTCHours(24, 0, 0, 0)).toISOString().replace(".000", "");
  for (const threshold of [0.8, 1]) {
    const notice = data.find((n) => n.data.threshold === threshold);
    assert.equal(notice.object, "notification");
    assert.equal(notice.type, "quota.threshold");
    assert.deepEqual([notice.data.policy, notice.data.limit, notice.data.resets_at, notice.read_at], ["daily", 100, midnight, null]);
    const hook = hooks.find((one) => one.id === notice.id);
    assert.deepEqual(hook.payload, { type: notice.type, timestamp: notice.created_at, data: notice.data });
    assert.ok(Math.abs(Number(hook.headers["webhook-timestamp"]) * 1000 - hook.at) < 5000);
    assert.ok(!hook.id.includes("."));
  }
  assert.ok(Date.now() - began < 60_000);
  assert.ok(user_id);
});

test("a limit lowered below what was used crosses once", async () => {
  const { key, user_id } = await caller({ daily_limit: 100 });
  for (let i = 0; i < 5; i++) await chat(key);
  assert.equal((await gateway.admin(`/admin/users/${user_id}`, { method: "PATCH", json: { overrides: { daily_limit: 6 } } })).status, 200);
  await chat(key);
  await eventually(async () => assert.deepEqual((await inbox(key)).data.map((n) => n.data.threshold).sort(), [0.8, 1]));
  for (let i = 0; i < 3; i++) assert.equal((await chat(key)).status, 429);
  await new Promise((resolve) => setTimeout(resolve, 1000));
  assert.equal((await inbox(key)).data.length, 2);
});

test("a notification queue that is out loses no notice and delays no call", async () => {
  const { key } = await caller({ daily_limit: 5 });
  await chat(key);
  await gateway.faults([{ binding: "NOTIFY_QUEUE", mode: "hang", ms: 30_000 }]);
  const began = Date.now();
  for (let i = 0; i < 4; i++) assert.equal((await chat(key)).status, 200);
  assert.ok(Date.now() - began < 1500, `${Date.now() - began} ms`);
  await new Promise((resolve) => setTimeout(resolve, 2500));
  await gateway.noFaults();
  await eventually(async () => assert.equal((await inbox(key)).data.length, 2), 40_000);
});

test("a notice that the account handed over twice is told once", async () => {
  const { key, path } = await caller({ daily_limit: 1 });
  await gateway.faults([{ binding: "NOTIFY_QUEUE", mode: "commit-then-error", times: 2 }]);
  await chat(key);
  await eventually(async () => assert.equal((await inbox(key)).data.length, 2), 30_000);
  await eventually(async () => assert.equal(receiver.of(path).length, 2));
  await new Promise((resolve) => setTimeout(resolve, 7000));
  assert.equal((await inbox(key)).data.length, 2);
  assert.deepEqual(new Set(receiver.of(path).map((hook) => hook.id)).size, 2);
});

test("a failed webhook is tried again along the ladder, with the same id and a new time", async () => {
  const { user_id, path } = await caller();
  receiver.answer = () => ({ status: 500 });
  const message = news(user_id);
  const { id } = message.notice;
  await deliver([message]);
  const first = await delivery(id);
  assert.deepEqual([first.status, first.attempts, first.last_answer], ["pending", 1, "500"]);
  assert.ok(Math.abs(first.next_attempt_at_ms - Date.now() - 5_250) < 1000);
  await eventually(async () => assert.equal((await delivery(id)).attempts, 2));
  const second = await delivery(id);
  assert.ok(second.next_attempt_at_ms - Date.now() > 298_000 && second.next_attempt_at_ms - Date.now() < 331_000);
  receiver.answer = () => ({ status: 200 });
  const due = () => gateway.d1.prepare("UPDATE deliveries SET next_attempt_at_ms = 0 WHERE notification_id = ?").bind(id).run();
  await due();
  await deliver([{ v: 1, delivery: { id, channel: "webhook", attempt: 2 } }]);
  assert.deepEqual(await delivery(id).then((d) => [d.status, d.attempts]), ["delivered", 3]);
  await due();
  await deliver([{ v: 1, delivery: { id, channel: "webhook", attempt: 2 } }, { v: 1, delivery: { id, channel: "webhook", attempt: 3 } }, message]);
  const hooks = receiver.of(path);
  assert.deepEqual(hooks.map((hook) => hook.id), [id, id, id]);
  assert.deepEqual(hooks.map((hook) => hook.problem), [undefined, undefined, undefined]);
  assert.ok(Number(hooks[1].headers["webhook-timestamp"]) >= Number(hooks[0].headers["webhook-timestamp"]) + 5);
});

test("the ladder has an end, and a receiver may ask for more time", async () => {
  const { user_id } = await caller();
  receiver.answer = () => ({ status: 503, headers: { "retry-after": "120" } });
  const message = news(user_id);
  const { id } = message.notice;
  await deliver([message]);
  assert.ok((await delivery(id)).next_attempt_at_ms - Date.now() > 118_000);
  await gateway.d1.prepare("UPDATE deliveries SET attempts = 9, next_attempt_at_ms = 0 WHERE notification_id = ?").bind(id).run();
  await deliver([{ v: 1, delivery: { id, channel: "webhook", attempt: 9 } }]);
  assert.deepEqual(await delivery(id).then((d) => [d.status, d.attempts]), ["failed", 10]);
});

test("redirects are not followed, and a webhook that is gone is taken off its user", async () => {
  const { user_id, key, path } = await caller();
  receiver.answer = () => ({ status: 302, headers: { location: `${receiver.url}/elsewhere` } });
  const message = news(user_id);
  await deliver([message]);
  assert.equal((await delivery(message.notice.id)).last_answer, "302");
  assert.equal(receiver.of("/elsewhere").length, 0);
  receiver.answer = () => ({ status: 410 });
  const last = news(user_id);
  await deliver([last]);
  assert.equal((await delivery(last.notice.id)).status, "failed");
  assert.equal((await user(user_id)).webhook_url, null);
  const { data } = await inbox(key);
  assert.equal(data.find((n) => n.type === "webhook.disabled").data.webhook_url, receiver.url + path);
  const audit = (await gateway.admin("/admin/audit")).body.data;
  assert.ok(audit.some((entry) => entry.target === user_id && entry.actor === "webhook"));
});

test("private targets are refused in production", async () => {
  const { user_id, path } = await caller();
  const message = news(user_id);
  await gateway.restart({ vars: { ENVIRONMENT: "production" } });
  await deliver([message]);
  await gateway.restart({ vars: { ENVIRONMENT: "test" } });
  assert.deepEqual(await delivery(message.notice.id).then((d) => [d.status, d.last_answer]), ["failed", "the address is not public"]);
  assert.equal(receiver.of(path).length, 0);
});

test("a name that leads into a private network is refused, and one that nobody can look up is left to the platform", async () => {
  const answers = { A: "10.0.0.7", AAAA: "2606:4700::6810:84e5" };
  const asked = [];
  const resolver = createServer((request, response) => {
    const query = new URL(request.url, "http://resolver").searchParams;
    asked.push(query.get("name"));
    const data = answers[query.get("type")];
    response.writeHead(data ? 200 : 500, { "content-type": "application/dns-json" });
    response.end(JSON.stringify({ Status: 0, Answer: [{ name: query.get("name"), type: 1, TTL: 60, data }] }));
  });
  await new Promise((resolve) => resolver.listen(0, "127.0.0.1", resolve));
  await gateway.restart({ vars: { DNS_RESOLVER_URL: `http://127.0.0.1:${resolver.address().port}/dns-query` } });
  const attempt = async () => {
    const { user_id } = await caller({}, { webhook_url: receiver.url.replace("127.0.0.1", "localhost") + "/by-name" });
    const message = news(user_id);
    await deliver([message]);
    return (await delivery(message.notice.id)).status;
  };
  assert.equal(await attempt(), "failed");
  answers.A = "93.184.215.14";
  assert.equal(await attempt(), "delivered");
  answers.AAAA = "::ffff:192.168.0.1";
  assert.equal(await attempt(), "failed");
  answers.A = answers.AAAA = undefined;
  assert.equal(await attempt(), "delivered");
  assert.deepEqual([...new Set(asked)], ["localhost"]);
  await gateway.restart({ vars: { DNS_RESOLVER_URL: null } });
  await new Promise((resolve) => resolver.close(resolve));
});

test("email goes out where it is set up, beside the webhook and with a ladder of its own", async () => {
  await gateway.restart({ vars: { HARNESS_EMAIL_URL: `${receiver.url}/email`, EMAIL_FROM: "gateway@example.com" } });
  const { user_id, path } = await caller({}, { email: "user@example.com" });
  receiver.answer = ({ path }) => ({ status: path === "/email" ? 500 : 200 });
  const message = news(user_id);
  const { id } = message.notice;
  await deliver([message]);
  assert.equal((await delivery(id)).status, "delivered");
  assert.deepEqual(await delivery(id, "email").then((d) => [d.status, d.attempts, d.last_answer]), ["pending", 1, "refused"]);
  receiver.answer = () => ({ status: 200 });
  await eventually(async () => assert.equal((await delivery(id, "email")).status, "delivered"));
  const mails = receiver.of("/email").map((mail) => mail.payload);
  assert.deepEqual(mails[0], { from: "gateway@example.com", to: "user@example.com", subject: "Your API usage", text: "Your job job_1 has succeeded." });
  assert.deepEqual([mails.length, receiver.of(path).length], [2, 1]);
  await gateway.restart({ vars: { HARNESS_EMAIL_URL: null, EMAIL_FROM: null } });
});

test("a blocked user is told so once", async () => {
  const { key, user_id, path } = await caller();
  await chat(key);
  for (const status of ["blocked", "blocked"]) assert.equal((await gateway.admin(`/admin/users/${user_id}`, { method: "PATCH", json: { status } })).status, 200);
  await eventually(async () => assert.equal(receiver.of(path).length, 1));
  const rows = await gateway.d1.prepare("SELECT type FROM notifications WHERE user_id = ?").bind(user_id).all();
  assert.deepEqual(rows.results.map((r) => r.type), ["user.blocked"]);
});

test("the inbox is its user's alone, comes in pages and remembers what was read", async () => {
  const { key, user_id } = await caller({}, { webhook_url: null });
  const stranger = await caller();
  for (let i = 0; i < 3; i++) await deliver([{ v: 1, notice: { ...news(user_id).notice, at: 1000 + i } }]);
  const first = await inbox(key, "?limit=2");
  const second = await inbox(key, `?limit=2&cursor=${first.next_cursor}`);
  assert.equal(new Set([...first.data, ...second.data].map((n) => n.id)).size, 3);
  assert.deepEqual([second.data.length, second.next_cursor], [1, null]);
  const { id } = first.data[0];
  const read = (who) => gateway.call(`/api/notifications/${id}/read`, { key: who, method: "POST" });
  assert.equal((await read(stranger.key)).status, 404);
  const once = await read(key);
  assert.equal(once.status, 200, once.text);
  assert.match(once.body.read_at, /Z$/);
  assert.equal((await read(key)).body.read_at, once.body.read_at);
  assert.equal((await gateway.call(`/api/notifications/${id}/read`, { key })).status, 405);
  assert.equal((await inbox(stranger.key)).data.length, 0);
});

test("nonsense and news for nobody spoil no batch", async () => {
  const { user_id, path } = await caller();
  const { outcome, retryMessages } = await deliver(["{", news("nobody"), news(user_id), { v: 1, delivery: { id: "ntf_none", channel: "webhook", attempt: 0 } }]);
  assert.deepEqual([outcome, retryMessages.length], ["ok", 0]);
  assert.equal(receiver.of(path).length, 1);
  const { n } = await gateway.d1.prepare("SELECT COUNT(*) AS n FROM dead_letters WHERE queue = 'sluice-notify'").first();
  assert.equal(n, 1);
});

test("a ledger that is out keeps the news on the queue", async () => {
  const { user_id, key } = await caller();
  const message = news(user_id);
  await gateway.faults([{ binding: "DB", mode: "error", match: "INSERT INTO notifications" }]);
  assert.equal((await deliver([message])).retryMessages.length, 1);
  await gateway.noFaults();
  await deliver([message], "sluice-notify-dead");
  assert.equal((await inbox(key)).data.length, 1);
});

test("a delivery whose message was lost is found by the clock, and old notifications are deleted", async () => {
  const { user_id, path } = await caller();
  receiver.answer = () => ({ status: 500 });
  const [message, old] = [news(user_id), news(user_id)];
  await deliver([message, old]);
  const past = Date.now() - 20 * 60_000;
  await gateway.d1.prepare("UPDATE deliveries SET next_attempt_at_ms = ?, attempts = 4 WHERE notification_id = ?").bind(past, message.notice.id).run();
  await gateway.d1.prepare("UPDATE notifications SET created_at_ms = ? WHERE notification_id = ?").bind(past, message.notice.id).run();
  await gateway.d1.prepare("UPDATE notifications SET created_at_ms = 1 WHERE notification_id = ?").bind(old.notice.id).run();
  receiver.answer = () => ({ status: 200 });
  await gateway.scheduled();
  await eventually(async () => assert.equal((await delivery(message.notice.id)).status, "delivered"));
  assert.equal(await delivery(old.notice.id), null);
  assert.ok(receiver.of(path).length >= 3);
});
