// The decision alone, for services that keep their own proxy.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import { after, before, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { eventually } from "./harness/eventually.mjs";

let gateway, service;

before(async () => {
  gateway = await startGateway();
  await gateway.keepToDocument();
  service = await gateway.createKey(await gateway.createUser({ user_id: "the-service", plan_id: "free" }), { scope: "service" });
});
after(() => gateway.stop());

let serial = 0;

/** A user on a plan of their own. */
async function caller(plan = {}) {
  const plan_id = `dec${++serial}`;
  await gateway.createPlan({ plan_id, daily_limit: 10, monthly_token_limit: 1000, ...plan });
  return gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
}

const ask = (question, json, key = service) => gateway.call(`/api/limits/${question}`, { key, json });
const consume = (user_id, rest) => ask("consume", { user_id, ...rest });
const used = (answer, name) => {
  const policy = answer.body.policies.find((one) => one.name === name);
  return [policy.used, policy.reserved];
};
const now = async (user_id) => consume(user_id, { peek: true });

test("a service asks for any user, and tells its client what the gateway would have told", async () => {
  const user = await caller({ daily_limit: 2 });
  const first = await consume(user);
  assert.equal(first.status, 200, first.text);
  const { allowed, reservation_id, policies, headers } = first.body;
  assert.equal(allowed, true);
  assert.match(reservation_id, /^rsv_[\w-]+$/);
  assert.deepEqual(policies.map((p) => p.name), ["daily", "monthly-tokens"]);
  assert.equal(headers["X-RateLimit-Limit"], "2");
  assert.equal(headers["X-RateLimit-Remaining"], "1");
  assert.equal(headers["X-Sluice-Decision"], "allowed");
  assert.match(headers["RateLimit-Policy"], /^"daily";q=2;w=86400/);
  assert.match(headers.RateLimit, /^"daily";r=1;t=\d+/);
  await consume(user);
  const refused = await consume(user);
  assert.deepEqual([refused.status, refused.body.allowed, refused.body.reservation_id, refused.body.status], [200, false, null, 429]);
  assert.equal(refused.body.error.code, "insufficient_quota");
  assert.equal(refused.body.error.policy, "daily");
  assert.equal(refused.body.resetAt, refused.body.error.reset_at);
  assert.match(refused.body.headers["Retry-After"], /^[1-9]\d*$/);
  assert.equal(refused.body.headers["x-should-retry"], "false");
  assert.equal(refused.body.headers["X-Sluice-Decision"], "refused");
  assert.match(refused.body.headers.RateLimit, /^"daily";r=0;t=\d+$/);
});

test("the service itself is never charged, however often it asks", async () => {
  const user = await caller({ daily_limit: 100 });
  for (let n = 0; n < 15; n++) assert.equal((await consume(user)).body.allowed, true);
  const own = await gateway.call("/api/quota", { key: service });
  assert.deepEqual(own.body.policies.filter((p) => p.used > 0), []);
});

test("cost and endpoint weigh as on a route of the gateway's own", async () => {
  const user = await caller({ daily_limit: 100, endpoints: [{ name: "export", max_requests: 5, per_seconds: 3600 }] });
  assert.equal((await consume(user, { endpoint: "export", cost: 3 })).body.allowed, true);
  const refused = await consume(user, { endpoint: "export", cost: 3 });
  assert.deepEqual([refused.body.allowed, refused.body.error.policy], [false, "endpoint:export"]);
  assert.equal((await consume(user, { endpoint: "export", cost: 2 })).body.allowed, true);
  assert.equal((await consume(user, { endpoint: "other", cost: 3 })).body.allowed, true);
  assert.deepEqual(used(await now(user), "daily")[0], 8);
  const never = await consume(user, { endpoint: "export", cost: 6 });
  assert.deepEqual([never.body.allowed, never.body.status, never.body.error.code], [false, 400, "request_exceeds_quota"]);
});

for (const [policy, plan] of Object.entries({
  daily: { daily_limit: 7 },
  rate: { rate: { capacity: 7, refill_per_minute: 1 } },
  window: { window: { max_requests: 7, minutes: 60 } },
  "endpoint:export": { endpoints: [{ name: "export", max_requests: 7, per_seconds: 3600 }] },
})) {
  test(`${policy}: a call that weighs three counts three, and one that weighs more than all is a 400`, async () => {
    const user = await caller({ daily_limit: 1000, ...plan });
    const weighing = (cost) => consume(user, { endpoint: "export", cost });
    for (let n = 0; n < 2; n++) assert.equal((await weighing(3)).body.allowed, true);
    const refused = (await weighing(3)).body;
    assert.deepEqual([refused.allowed, refused.status, refused.error.policy], [false, 429, policy]);
    const never = (await weighing(8)).body;
    assert.deepEqual([never.allowed, never.status, never.error.code, never.headers["Retry-After"]], [false, 400, "request_exceeds_quota", undefined]);
    const last = await weighing(1);
    assert.equal(last.body.allowed, true);
    assert.deepEqual(used(last, policy)[0], 7);
  });
}

test("tokens are reserved, then settled at what was used, or released", async () => {
  const user = await caller();
  const first = await consume(user, { tokens: 600 });
  assert.deepEqual(used(first, "monthly-tokens"), [0, 600]);
  const second = await consume(user, { tokens: 600 });
  assert.deepEqual([second.body.allowed, second.body.error.code], [false, "tokens_reserved"]);
  assert.ok(Number(second.body.headers["Retry-After"]) <= 5);
  const settled = await ask("settle", { reservation_id: first.body.reservation_id, tokens: 250 });
  assert.deepEqual([settled.status, settled.body.settled], [200, true]);
  assert.deepEqual(used(settled, "monthly-tokens"), [250, 0]);

  const third = await consume(user, { tokens: 600 });
  const released = await ask("release", { reservation_id: third.body.reservation_id });
  assert.deepEqual([released.body.settled, used(released, "monthly-tokens"), used(released, "daily")], [true, [250, 0], [1, 0]]);

  const fourth = await consume(user, { tokens: 100 });
  const over = await ask("settle", { reservation_id: fourth.body.reservation_id, tokens: 900 });
  assert.deepEqual(used(over, "monthly-tokens"), [1150, 0], "booked in full");
  const empty = await consume(user, { tokens: 1 });
  assert.deepEqual([empty.body.allowed, empty.body.error.policy], [false, "monthly-tokens"]);
});

test("settling without a number books what was reserved", async () => {
  const user = await caller();
  const { body } = await consume(user, { tokens: 70 });
  assert.deepEqual(used(await ask("settle", { reservation_id: body.reservation_id }), "monthly-tokens"), [70, 0]);
});

test("settle and release are idempotent, and what is unknown changes nothing", async () => {
  const user = await caller();
  const { body } = await consume(user, { tokens: 100 });
  for (const tokens of [40, 40, 90]) {
    const again = await ask("settle", { reservation_id: body.reservation_id, tokens });
    assert.deepEqual([again.body.settled, used(again, "monthly-tokens"), used(again, "daily")], [true, [40, 0], [1, 0]]);
  }
  const late = await ask("release", { reservation_id: body.reservation_id });
  assert.deepEqual([used(late, "monthly-tokens"), used(late, "daily")], [[40, 0], [1, 0]]);
  const tampered = body.reservation_id.slice(0, -2) + (body.reservation_id.endsWith("A") ? "B" : "A").repeat(2);
  for (const reservation_id of ["", "rsv_", "nonsense", "rsv_AAAA", tampered]) {
    for (const question of ["settle", "release"]) {
      const unknown = await ask(question, { reservation_id });
      assert.deepEqual([unknown.status, unknown.body], [200, { settled: false }]);
    }
  }
  assert.deepEqual(used(await now(user), "daily"), [1, 0]);
});

test("peek answers the same and charges nothing", async () => {
  const user = await caller({ daily_limit: 1, rate: { capacity: 5, refill_per_minute: 1 } });
  for (let n = 0; n < 8; n++) {
    const peeked = await consume(user, { peek: true, tokens: 100, operation_id: "peeked" });
    assert.deepEqual([peeked.body.allowed, peeked.body.reservation_id], [true, null]);
  }
  assert.deepEqual(used(await now(user), "rate"), [0, 0]);
  assert.equal((await consume(user, { operation_id: "peeked" })).body.allowed, true);
  const refused = await consume(user, { peek: true });
  assert.deepEqual([refused.body.allowed, refused.body.error.policy], [false, "daily"]);
});

test("the same operation twice charges once, in a row or at once, and per user", async () => {
  const [user, other] = [await caller(), await caller()];
  const first = await consume(user, { operation_id: "order 7", tokens: 50 });
  const again = await consume(user, { operation_id: "order 7", tokens: 50 });
  assert.equal(again.body.reservation_id, first.body.reservation_id);
  assert.deepEqual([used(again, "daily"), used(again, "monthly-tokens")], [[1, 0], [0, 50]]);
  await Promise.all(Array.from({ length: 20 }, () => consume(user, { operation_id: "burst" })));
  assert.deepEqual(used(await now(user), "daily"), [2, 0]);
  assert.equal((await consume(other, { operation_id: "order 7" })).body.allowed, true);
  assert.deepEqual(used(await now(other), "daily"), [1, 0]);
  await ask("settle", { reservation_id: first.body.reservation_id, tokens: 20 });
  const late = await consume(user, { operation_id: "order 7", tokens: 50 });
  assert.equal(late.body.allowed, true);
  assert.deepEqual([used(late, "daily"), used(late, "monthly-tokens")], [[2, 0], [20, 0]]);
});

test("a call refused by one limit costs none of the others (B02)", async () => {
  const user = await caller({ rate: { capacity: 10, refill_per_minute: 1 }, endpoints: [{ name: "narrow", max_requests: 2, per_seconds: 60 }] });
  const answers = [];
  for (let n = 0; n < 6; n++) answers.push((await consume(user, { endpoint: "narrow", tokens: 10 })).body.allowed);
  assert.deepEqual(answers, [true, true, false, false, false, false]);
  await consume(user);
  const after = await now(user);
  assert.deepEqual([used(after, "daily"), used(after, "rate"), used(after, "endpoint:narrow"), used(after, "monthly-tokens")], [[3, 0], [3, 0], [2, 0], [0, 20]]);
});

test("a reply that is lost after the charge is not charged again (B48)", async () => {
  for (const times of [1, 2, 3]) {
    const user = await caller({ on_outage: "closed" });
    assert.equal((await now(user)).body.allowed, true);
    await gateway.fault({ binding: "ACCOUNTS", mode: "commit-then-error", match: `${user} `, times });
    let answer;
    for (let tries = 0; tries < 3 && answer?.status !== 200; tries++) answer = await consume(user, { operation_id: "once", tokens: 30 });
    await gateway.noFaults();
    assert.deepEqual([answer.status, answer.body.allowed], [200, true], answer.text);
    assert.deepEqual([used(answer, "daily"), used(answer, "monthly-tokens")], [[1, 0], [0, 30]]);
    await gateway.fault({ binding: "ACCOUNTS", mode: "commit-then-error", match: `${user} `, times });
    let settled;
    for (let tries = 0; tries < 3 && settled?.status !== 200; tries++) settled = await ask("settle", { reservation_id: answer.body.reservation_id, tokens: 12 });
    await gateway.noFaults();
    assert.deepEqual([settled.body.settled, used(settled, "monthly-tokens")], [true, [12, 0]]);
    await eventually(async () => {
      const row = await gateway.quotaRow(user);
      assert.deepEqual([row?.used_today, row?.tokens_used_this_month], [1, 12]);
    });
  }
});

test("what a service asks again after a 503 is not given back behind its back", async () => {
  const user = await caller();
  assert.equal((await now(user)).body.allowed, true);
  await gateway.fault({ binding: "ACCOUNTS", mode: "error", match: `${user} ` });
  assert.equal((await consume(user, { operation_id: "again", tokens: 30 })).status, 503);
  await gateway.noFaults();
  const answer = await consume(user, { operation_id: "again", tokens: 30 });
  assert.equal(answer.body.allowed, true);
  await pause(4_000);
  const settled = await ask("settle", { reservation_id: answer.body.reservation_id, tokens: 12 });
  assert.deepEqual([settled.body.settled, used(settled, "daily"), used(settled, "monthly-tokens")], [true, [1, 0], [12, 0]]);
});

test("every answer to a service says how somebody stands", async () => {
  const limits = ({ headers }) => ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-sluice-decision"].filter((name) => !headers.get(name));
  const answers = [
    await ask("consume", {}),
    await ask("consume", { user_id: "nobody-of-this-name" }),
    await gateway.call("/api/limits/consume", { key: service, method: "POST", body: "no json" }),
    await ask("settle", { reservation_id: "made-up" }),
    await ask("release", {}),
  ];
  assert.deepEqual(answers.map(limits), answers.map(() => []));
});

test("while an account is out the answer is 503, soon, and worth another try", async () => {
  const user = await caller();
  await gateway.fault({ binding: "ACCOUNTS", mode: "error", match: `${user} ` });
  const began = Date.now();
  const answer = await consume(user);
  await gateway.noFaults();
  assert.equal(answer.status, 503);
  assert.match(answer.headers.get("retry-after"), /^[1-9]\d*$/);
  assert.ok(Date.now() - began < 5000);
  assert.equal((await consume(user)).body.allowed, true);
});

test("only a service decides for others, and what it asks has to make sense", async () => {
  const user = await caller();
  const own = await gateway.createKey(user);
  const forbidden = await ask("consume", { user_id: user }, own);
  assert.deepEqual([forbidden.status, forbidden.body.error.code], [403, "insufficient_scope"]);
  for (const question of ["settle", "release"]) assert.equal((await ask(question, { reservation_id: "x" }, own)).status, 403);
  assert.equal((await gateway.call("/api/limits/consume", { json: { user_id: user } })).status, 401);
  const nobody = await consume("nobody-of-this-name");
  assert.deepEqual([nobody.status, nobody.body.error.code], [404, "user_not_found"]);
  assert.equal((await gateway.call("/api/limits/consume", { key: service })).status, 405);
  const wrong = [
    [{}, null], [{ user_id: 7 }, "user_id"], [{ user_id: "" }, "user_id"], [{ user_id: "a b" }, "user_id"], [{ user_id: user, cost: 0 }, "cost"],
    [{ user_id: user, cost: -1 }, "cost"], [{ user_id: user, cost: 1.5 }, "cost"], [{ user_id: user, cost: "1" }, "cost"], [{ user_id: user, cost: 2 ** 53 }, "cost"],
    [{ user_id: user, tokens: -1 }, "tokens"], [{ user_id: user, endpoint: "a b" }, "endpoint"], [{ user_id: user, operation_id: "" }, "operation_id"],
    [{ user_id: user, operation_id: "x".repeat(129) }, "operation_id"], [{ user_id: user, operation_id: "é" }, "operation_id"], [{ user_id: user, costs: 1 }, "costs"],
  ];
  for (const [json, param] of wrong) {
    const answer = await ask("consume", json);
    assert.deepEqual([answer.status, answer.body.error.param], [400, param], JSON.stringify(json));
  }
  const twice = await gateway.call("/api/limits/consume", { key: service, method: "POST", body: `{"user_id":"${user}","user_id":"x"}` });
  assert.deepEqual([twice.status, twice.body.error.param], [400, "user_id"]);
  assert.deepEqual(used(await now(user), "daily"), [0, 0]);
});

test("a blocked user is refused with the status to give them", async () => {
  const user = await caller();
  await gateway.d1.prepare("UPDATE users SET status = 'blocked', version = version + 1 WHERE user_id = ?").bind(user).run();
  const answer = await consume(user);
  assert.deepEqual([answer.status, answer.body.allowed, answer.body.status, answer.body.error.code], [200, false, 403, "user_blocked"]);
});

test("a revoked service key ends", async () => {
  const owner = await gateway.createUser({ user_id: "short-lived", plan_id: "free" });
  const revoked = await gateway.createKey(owner, { scope: "service", revoked_at: 1 });
  assert.equal((await ask("consume", { user_id: owner }, revoked)).status, 401);
});
