// Whoever has no quota left is refused before their call is read: whatever it says, in the words of the long way, counted
// and logged like any other. What an answer may depend on beside the credential is still looked at.
import assert from "node:assert/strict";
import { Agent, request } from "node:http";
import { text } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

const chats = "/v1/chat/completions";
const hello = { model: "m-small", max_tokens: 5, messages: [{ role: "user", content: "hi" }] };
const garbage = { body: "{ this is no JSON", headers: { "content-type": "application/json" } };
let gateway, upstream;

before(async () => {
  upstream = await startUpstream();
  upstream.always({ usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } });
  gateway = await startGateway({ upstream, vars: { CORS_ORIGINS: "https://app.example", LOG_CALLS: "true" } });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const chat = (key, init = { json: hello }) => gateway.call(chats, { key, ...init });

async function spent(plan = { daily_limit: 1 }, on = gateway) {
  const plan_id = `t${Math.random().toString(36).slice(2, 10)}`;
  await on.createPlan({ plan_id, ...plan });
  const user_id = await on.createUser({ user_id: `u-${plan_id}`, plan_id });
  const key = await on.createKey(user_id);
  while ((await on.call(chats, { key, json: hello })).status === 200);
  return { key, user_id };
}

async function exhausted() {
  const user = await spent();
  await known(user.key);
  return user;
}

/** Calls until a call that is not even read is refused; gives the answer before it and this one. */
const known = (key, init = garbage) =>
  eventually(async () => {
    const long = await chat(key);
    const short = await chat(key, init);
    assert.deepEqual([long.status, short.status], [429, 429]);
    return { long, short };
  });

test("what a call says doesn't matter: the words are the same, the id is its own", async () => {
  const { key } = await exhausted();
  const { long, short } = await known(key);
  const words = ({ headers }) => Object.fromEntries([...headers].filter(([name]) => !["x-request-id", "request-id", "date"].includes(name)));
  const waits = ["ratelimit", "retry-after", "x-ratelimit-reset-requests"];
  const [mine, theirs] = [words(short), words(long)];
  assert.deepEqual(Object.keys(mine).sort(), Object.keys(theirs).sort());
  for (const [name, value] of Object.entries(theirs)) if (!waits.includes(name)) assert.equal(mine[name], value, name);
  const wait = ({ headers }) => Number(headers.get("retry-after"));
  assert.ok(wait(long) - wait(short) <= 1 && wait(long) >= wait(short), `${wait(long)}, ${wait(short)}`);
  const { request_id, ...body } = short.body;
  assert.deepEqual(body, (({ request_id, ...rest }) => rest)(long.body));
  assert.match(request_id, /^req_[0-9A-Za-z]{20}$/);
  assert.notEqual(request_id, long.body.request_id);
  for (const name of ["x-request-id", "request-id"]) assert.equal(short.headers.get(name), request_id);
});

test("another model, a longer prompt and a stream are refused alike", async () => {
  const { key } = await exhausted();
  await known(key, { json: { ...hello, model: "nobody-knows-it" } });
  await known(key, { json: { ...hello, messages: [{ role: "user", content: "a word ".repeat(2_000) }] } });
  await known(key, { json: { ...hello, stream: true } });
});

test("each is counted, and a line in the log", async () => {
  const { key, user_id } = await exhausted();
  await pause(2_500);
  await eventually(async () => {
    const [day] = await gateway.usageRows(user_id);
    await pause(1_500);
    assert.equal((await gateway.usageRows(user_id))[0].rejected, day.rejected);
  });
  const before = (await gateway.usageRows(user_id))[0].rejected;
  const answers = [];
  let unread = 0;
  for (let i = 0; i < 60; i++) {
    const answer = await chat(key, i % 2 ? garbage : undefined);
    if (i % 2 && answer.status === 429) unread += 1;
    answers.push(answer);
  }
  assert.ok(unread > 15, `${unread} of 30 were not read`);
  const refused = answers.filter(({ status }) => status === 429);
  await eventually(async () => assert.equal((await gateway.usageRows(user_id))[0].rejected, before + refused.length));
  await eventually(async () => {
    const lines = gateway.logs().split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
    const byId = new Map(lines.filter(({ event }) => event === "call").map((line) => [line.request_id, line]));
    for (const { body } of refused) {
      const { route, method, status, decision, policy } = byId.get(body.request_id);
      assert.deepEqual([route, method, status, decision, policy], [chats, "POST", 429, "refused", "daily"]);
    }
  });
  assert.equal(new Set(answers.map(({ headers }) => headers.get("x-request-id"))).size, answers.length);
});

test("a call on which the answer may depend is read", async (t) => {
  const { key, user_id } = await exhausted();
  const read = async (init) => {
    await known(key);
    return chat(key, init);
  };
  const also = (headers) => ({ ...garbage, headers: { ...garbage.headers, ...headers } });
  await t.test("a browser's", async () => {
    const { headers, status } = await read(also({ origin: "https://app.example" }));
    assert.deepEqual([status, headers.get("access-control-allow-origin")], [400, "https://app.example"]);
  });
  await t.test("one that asks for its timing or for later", async () => {
    assert.equal((await read(also({ "x-sluice-timing": "1" }))).status, 400);
    assert.equal((await read(also({ prefer: "respond-async" }))).status, 400);
  });
  await t.test("one with two credentials", async () => {
    const other = await gateway.createKey(await gateway.createUser({ plan_id: "pro" }));
    assert.equal((await read(also({ "x-api-key": other }))).body.error.message, "Several different credentials were sent.");
  });
  await t.test("one that is long", async () => {
    assert.equal((await read({ ...garbage, body: "x".repeat(40_000) })).status, 400);
  });
  await t.test("one with another key, at another door, or by another method", async () => {
    await known(key);
    assert.equal((await chat(await gateway.createKey(user_id), garbage)).status, 400);
    assert.equal((await gateway.call("/v1/embeddings", { key, ...garbage })).status, 400);
    assert.equal((await gateway.call(chats, { key, method: "PUT", ...garbage })).status, 405);
    assert.equal((await gateway.call(chats, { key: `${key}x`, ...garbage })).status, 401);
  });
});

test("every call is read where it matters what it says", async (t) => {
  const always = async (key) => {
    for (let i = 0; i < 10; i++) {
      assert.equal((await chat(key)).status, 429);
      assert.equal((await chat(key, garbage)).status, 400);
    }
  };
  await t.test("the month has little left and might refuse for longer than the day", async () => {
    await always((await spent({ daily_limit: 1, monthly_token_limit: 1_000 })).key);
  });
  await t.test("the call might become a job", async () => {
    await always((await spent({ daily_limit: 1, over_quota: { strategy: "queue" } })).key);
  });
});

test("Anthropic's callers hear it in their own words", async () => {
  const { key } = await exhausted();
  const message = (init) => gateway.call("/v1/messages", { ...init, headers: { ...init.headers, "x-api-key": key } });
  await eventually(async () => {
    assert.equal((await message({ json: hello })).status, 429);
    const { status, body } = await message(garbage);
    assert.deepEqual([status, body.type, body.error.type], [429, "error", "rate_limit_error"]);
  });
});

/** Refused calls one after the other on one connection. */
async function onOneConnection(url, key) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const sockets = new Set();
  const post = (body) =>
    new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${key}`, "content-type": "application/json", "content-length": Buffer.byteLength(body) };
      const sent = request(new URL(chats, url), { method: "POST", agent, headers }, async (answer) => {
        sockets.add(answer.socket);
        resolve({ status: answer.statusCode, text: await text(answer) });
      });
      sent.on("error", reject);
      sent.end(body);
    });
  const long = JSON.stringify({ ...hello, messages: [{ role: "user", content: "x".repeat(30_000) }] });
  for (let i = 0; i < 40; i++) assert.equal((await post(i % 2 ? long : JSON.stringify(hello))).status, 429);
  assert.equal(sockets.size, 1);
  agent.destroy();
}

test("what was left unread does not disturb the next call on the same connection", async (t) => {
  await t.test("as it is developed", async () => {
    await onOneConnection(gateway.url, (await exhausted()).key);
  });
  await t.test("as it is deployed, without Miniflare's proxy", async () => {
    const deployed = await startGateway({ upstream, direct: true, vars: { ENVIRONMENT: "production" } });
    try {
      await onOneConnection(deployed.directUrl, (await spent(undefined, deployed)).key);
    } finally {
      await deployed.stop();
    }
  });
});
