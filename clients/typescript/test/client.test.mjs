import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { Guard, SluiceClient, SluiceError, SluiceUnavailable } from "@sluice/client";
import { allowed, refused, startFake } from "./gateway.mjs";

let fake, client;
before(async () => {
  fake = await startFake();
  client = new SluiceClient({ url: `${fake.url}/`, key: "k", timeoutMs: 300 });
});
after(() => fake.stop());
beforeEach(() => Object.assign(fake, { asked: [], answers: [], always: [200, allowed] }));

test("questions are asked by the names of the gateway", async () => {
  assert.deepEqual(await client.consume({ userId: "u", endpoint: "export", cost: 2, tokens: 5, operationId: "o" }), allowed);
  await client.peek({ userId: "u" });
  await client.settle("rsv_1", 3);
  await client.settle("rsv_1");
  await client.release("rsv_1");
  assert.deepEqual(fake.asked.map(({ question, body }) => [question, body]), [
    ["consume", { user_id: "u", endpoint: "export", cost: 2, tokens: 5, operation_id: "o" }],
    ["consume", { user_id: "u", peek: true }],
    ["settle", { reservation_id: "rsv_1", tokens: 3 }],
    ["settle", { reservation_id: "rsv_1" }],
    ["release", { reservation_id: "rsv_1" }],
  ]);
  assert.ok(fake.asked.every(({ key }) => key === "Bearer k"));
});

test("a lost answer is asked for again with the same id", async () => {
  for (const lost of [[0], [503, {}]]) {
    fake.asked = [];
    fake.answers = [lost];
    assert.equal((await client.consume({ userId: "u" })).allowed, true);
    const ids = fake.asked.map(({ body }) => body.operation_id);
    assert.equal(ids.length, 2);
    assert.equal(ids[0], ids[1]);
    assert.match(ids[0], /^[0-9a-f-]{36}$/);
  }
});

test("what is wrong with the question is told from a gateway that is out", async () => {
  fake.answers = [[403, { error: { message: "no", code: "insufficient_scope" } }]];
  await assert.rejects(client.consume({ userId: "u" }), (error) => {
    assert.ok(error instanceof SluiceError);
    assert.deepEqual([error.status, error.code, error.message, error.requestId], [403, "insufficient_scope", "no", "req_9"]);
    return true;
  });
  fake.always = [503, {}];
  await assert.rejects(client.consume({ userId: "u" }), SluiceUnavailable);
  const nowhere = new SluiceClient({ url: "http://127.0.0.1:1", key: "k" });
  await assert.rejects(nowhere.consume({ userId: "u" }), SluiceUnavailable);
});

test("a slow gateway costs its time budget and no more", async () => {
  fake.always = [200, allowed, 2000];
  const began = Date.now();
  await assert.rejects(client.consume({ userId: "u" }), SluiceUnavailable);
  assert.ok(Date.now() - began < 1000);
});

test("a refusal carries the answer to give", async () => {
  fake.always = [200, refused];
  const outcome = await new Guard({ client }).enter({ userId: "u" });
  assert.equal(outcome.allowed, false);
  assert.equal(outcome.status, 429);
  assert.deepEqual(outcome.headers, refused.headers);
  assert.deepEqual(outcome.body, { error: refused.error, resetAt: refused.resetAt, request_id: "req_1" });
});

test("without a gateway each user has so many calls a minute, and the gateway is left alone for a while", async () => {
  fake.always = [503, {}];
  let told = 0;
  const guard = new Guard({ client, outage: { perMinute: 2, pauseMs: 100 }, onOutage: () => (told += 1) });
  const enter = async (userId) => (await guard.enter({ userId })).allowed;
  assert.deepEqual([await enter("a"), await enter("a"), await enter("a"), await enter("b")], [true, true, false, true]);
  assert.equal(told, 4);
  assert.equal(fake.asked.length, 2, "one question, tried twice");
  const closed = await guard.enter({ userId: "a" });
  assert.equal(closed.status, 503);
  assert.match(closed.headers["Retry-After"], /^[1-9]\d*$/);
  fake.always = [200, refused];
  await new Promise((resolve) => setTimeout(resolve, 120));
  assert.equal(await enter("b"), false, "the gateway decides again");
});

test("perMinute 0 closes instead", async () => {
  fake.always = [503, {}];
  const guard = new Guard({ client, outage: { perMinute: 0 } });
  assert.equal((await guard.enter({ userId: "a" })).status, 503);
});

test("an unknown user is refused, a wrong key is an error", async () => {
  fake.answers = [[404, { error: { message: "There is no such user.", code: "user_not_found" } }]];
  assert.equal((await new Guard({ client }).enter({ userId: "u" })).status, 403);
  fake.answers = [[401, { error: { message: "bad", code: "invalid_api_key" } }]];
  await assert.rejects(new Guard({ client }).enter({ userId: "u" }), SluiceError);
});

test("a ticket ends once", async () => {
  const { ticket } = await new Guard({ client }).enter({ userId: "u" });
  ticket.tokens = 7;
  await ticket.settle();
  await ticket.release();
  await ticket.settle(9);
  assert.deepEqual(fake.asked.slice(1).map(({ question, body }) => [question, body.tokens]), [["settle", 7]]);
});
