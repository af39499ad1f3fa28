// The soak's judge: what a call must have cost, and which calls nobody can be sure of.
import assert from "node:assert/strict";
import { test } from "node:test";
import { expected, lostLeases, releasedInVain, touches } from "./soak/verdict.mjs";

const call = (result, rest = {}) => ({ result, began: 1_000, ended: 2_000, ...rest });
const whole = { end: "whole", tokens: 12 };
const error = { end: "error" };
const spell = (what, from, to) => ({ what, from, to });

test("a call that nothing interfered with is exact", () => {
  for (const [record, attempts, calls, tokens] of [
    [call("ok"), [whole], 1, 12],
    [call("refused"), [], 0, 0],
    [call("failed"), [error], 0, 0],
    [call("ok"), [error, whole], 1, 12],
  ]) {
    const one = expected(record, attempts, false);
    assert.deepEqual([one.exact, one.calls, one.tokens], [true, [calls, calls], [tokens, tokens]]);
  }
});

test("a hang-up is one call of something, and a call that a kill may have caught is one or none", () => {
  const left = expected(call("left"), [whole], false);
  assert.deepEqual([left.exact, left.calls, left.tokens[0]], [false, [1, 1], 1]);
  assert.deepEqual(expected(call("ok"), [whole], true).calls, [0, 1]);
  assert.equal(expected(call("queued", { job: "job_1" }), [whole], false), null);
});

test("a kill catches what had not ended long before, and all that ended in an outage it cut short", () => {
  assert.equal(touches(call("ok"), [spell("killed", 6_000, 9_000)]), true);
  assert.equal(touches(call("ok"), [spell("restarted", 8_000, 9_000)]), false);
  assert.equal(touches(call("ok"), [spell("killed", 100, 900)]), false);
  assert.equal(touches(call("ok"), [spell("accounts hang", 1_500, 20_000), spell("killed", 25_000, 26_000)]), true);
  assert.equal(touches(call("ok"), [spell("accounts hang", 1_500, 4_000), spell("killed", 25_000, 26_000)]), false);
  assert.equal(touches(call("ok"), [spell("ledger fails", 1_500, 20_000), spell("killed", 25_000, 26_000)]), false);
});

test("what was to be given back while the account was out may not have been", () => {
  assert.equal(releasedInVain(call("failed"), [error], [spell("accounts fail", 1_500, 1_800)]), true);
  assert.equal(releasedInVain(call("ok"), [error, whole], [spell("accounts fail", 1_500, 1_800)]), false);
});

test("leases that an end took with it may be charged in full, and nothing else may", () => {
  assert.deepEqual(lostLeases([spell("ledger fails", 1, 2)]).calls, [0, 0]);
  assert.deepEqual(lostLeases([spell("killed", 1, 2), spell("accounts hang", 3, 4)]).calls, [0, 2 * 2 * 512]);
});
