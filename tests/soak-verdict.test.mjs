// The soak's judge: what each call must have cost, which calls nobody can be sure of, and that one call too few or too
// many is found out.
import assert from "node:assert/strict";
import { test } from "node:test";
import { costsOf, costsOfLost, endingsOf, endsOf, isCaught, lostLeases, worthOf } from "./soak/costs.mjs";
import { countedUp, countsOf, policiesOf } from "./soak/counts.mjs";
import { readAnswer, readMessage } from "./soak/packed.mjs";
import { contradiction, plus } from "./soak/sums.mjs";
import { growth, widthOf } from "./soak/verdict.mjs";
import { Witness } from "./soak/witness.mjs";

const estimate = 13;
const date = "2026-11-30";
const clock = Date.parse(`${date}T10:00:00Z`);
const whole = { end: "whole", tokens: [3, 9], pieces: 4, at: 1_050, now: clock };
const error = { end: "error", at: 1_050, now: clock };
const killed = { what: "killed", from: 1_100, to: 2_000 };

const number = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...number(Math.floor(n / 128))]);
const text = (string) => [...number(string.length), ...Buffer.from(string)];
const base64 = (...bytes) => Buffer.from(bytes.flat()).toString("base64");
const said = (ask) => base64(3, ask, [0, 0, 0, 0, 0], text("u"), 0);
const standing = [1, text("p"), text("P"), 0, 0, 0, 0, 0, 0, 0, 0].flat();
const handedOut = (lease) => (lease ? [1, text(lease[0]), 3, lease[1].flatMap((n) => [1, ...number(n)]), 0, 0].flat() : [0]);
const admit = (mark) => said([0, text(`op-${mark}`), 1, estimate, 0, 1, 1, 0, 0, 0, 9].flat());

/** The log of a gateway, by what its witness saw. */
function story() {
  const witness = new Witness();
  let exchanges = 0;
  const line = (at, rest) => witness.take(JSON.stringify({ witness: at, now: clock + at, life: "first", ...rest }));
  /** `answer: null`: nobody saw what became of it. */
  const exchange = (at, asked, answer) => {
    const id = `ask-${++exchanges}`;
    line(at, { id, asked });
    if (answer) line(at + 5, { id, answered: base64(3, answer) });
  };
  const asks = (mark, at, answer) => {
    line(at - 5, { came: mark });
    line(at - 1, { front: admit(mark), mark });
    exchange(at, admit(mark), answer);
  };
  return {
    witness,
    asks(mark, { at = 1_010, lane = 0, lease, lost = false } = {}) {
      asks(mark, at, lost ? null : [0, 0, 1, text(`op-${mark}`), 0, 0, lane, 0, 0, standing, 0, handedOut(lease)].flat());
      return this;
    },
    isRefused(mark, at = 1_010, policy = "daily") {
      asks(mark, at, [0, 1, 1, text(policy), 0, 10, 0, 9, 9, standing, 0, 0].flat());
      return this;
    },
    comes(mark, at = 1_005) {
      line(at, { came: mark });
      return this;
    },
    settles(mark, used, { at = 1_080, lost = false } = {}) {
      exchange(at, said([2, text(`op-${mark}`), used ? [0, ...used.flatMap(number), 0] : 1, 0, 0].flat()), lost ? null : [2]);
      return this;
    },
    /** Told along with another message. */
    tellsAlong(mark, used, at = 1_080) {
      exchange(at, base64(3, 15, [0, 0, 0, 0, 0], text("u"), 1, text(`op-${mark}`), 0, used, 0, 0, 0), [4, 1]);
      return this;
    },
    books(mark, used, { at = 1_090 } = {}) {
      exchange(at, said([10, text(`op-${mark}`), 1, used.flatMap(number), number(clock + at)].flat()), [4, 1]);
      return this;
    },
    takesBack(lease, at, open = []) {
      const calls = open.flatMap((mark) => [...text(`op-${mark}`), 0]);
      exchange(at, said([12, text(lease), 5, 1, 1, 1, 0, 1, 1, 1, 3, 1, 9, open.length, calls, 0, 0].flat()), [1, standing, 0].flat());
      return this;
    },
  };
}

const record = (mark, rest = {}) => ({ mark, result: "ok", status: 200, began: 1_000, ended: 1_090, aborted: false, ...rest });
const judged = (one, { witness }, rest = {}) =>
  costsOf(one, { attempts: [whole], seen: witness.calls.get(one.mark), witness, spells: [], estimate, leases: false, lost: [], ...rest });
const cost = (calls, prompt, completion, rest = {}) =>
  Object.fromEntries(Object.entries({ calls, prompt, completion, ...rest }).filter(([, n]) => n > 0).map(([name, n]) => [`${date} ${name}`, n]));

test("what a call was worth is what the provider's log says", () => {
  assert.deepEqual(worthOf([whole], false, estimate), [[1, 3, 9]]);
  assert.deepEqual(worthOf([], false, estimate), [[0, 0, 0]]);
  assert.deepEqual(worthOf([error], false, estimate), [[0, 0, 0]]);
  assert.deepEqual(worthOf([{ ...whole, tokens: undefined }], false, estimate), [[1, 13, 4]]);
  assert.deepEqual(worthOf([{ ...whole, end: "cut", stream: true, relayed: 2 }], false, estimate), [[1, 13, 2]]);
  assert.deepEqual(worthOf([{ ...whole, end: "cut", stream: true, anthropic: true, relayed: 0 }], false, estimate), [[1, 3, 1]]);
});

test("a caller who left pays for what was relayed, no more than the whole", () => {
  assert.deepEqual(worthOf([whole], true, estimate), [[1, 13, 0], [1, 3, 9]]);
  assert.deepEqual(worthOf([{ ...whole, stream: true }], true, estimate).map(([, prompt, completion]) => [prompt, completion]), [[13, 0], [13, 0], [13, 1], [13, 2], [13, 3], [13, 4], [3, 9]]);
});

test("a call that nothing interfered with is exact, and what its account was told must be what it was worth", () => {
  assert.deepEqual(judged(record("a"), story().asks("a").settles("a", [3, 9])), { costs: [cost(1, 3, 9)], wrong: [] });
  assert.match(judged(record("a"), story().asks("a").settles("a", [3, 8])).wrong.join(), /settled at 3,8.*1\/3\/9/);
  assert.match(judged(record("a"), story().asks("a")).wrong.join(), /came to lapsed/);
  assert.match(judged(record("a"), story().isRefused("a")).wrong.join(), /came to refused/);
  assert.match(judged(record("a"), story().comes("a")).wrong.join(), /its account never asked/);
  assert.match(judged(record("a"), story().asks("a").settles("a", null)).wrong.join(), /came to released/);
  assert.match(judged(record("a"), story().asks("a").settles("a", [3, 9]), { attempts: [whole, whole] }).wrong.join(), /dispatched twice/);
  assert.match(judged(record("a"), story(), { attempts: [] }).wrong.join(), /without the provider/);
});

test("an end that was told along with another message is as good as one told alone", () => {
  assert.deepEqual(judged(record("a"), story().asks("a").tellsAlong("a", [3, 9])), { costs: [cost(1, 3, 9)], wrong: [] });
});

/** Bytes as the tests of src/account/wire.rs pin them: printable ones as they are, others as their number. */
const pinned = (shown) => new Uint8Array(shown.match(/\[\d+\]|[^]/g).map((one) => (one.length > 1 ? Number(one.slice(1, -1)) : one.charCodeAt(0))));

test("messages and answers are read as src/account/wire.rs writes them", () => {
  const { user, ask, ended } = readMessage(pinned("[3][0][4]op_1[1][3][1][10][1][1][0][1][1]m[0][232][7][1][5]key_1[0][0][0][0][1]u[1][4]op_0[0][3][5][0][1][3][1][250][1]"));
  assert.deepEqual([user, ask.admit, ended[0].operation, ended[0].used], ["u", { operation: "op_1", dispatched: true }, "op_0", [3, 5]]);
  const settle = readMessage(pinned("[3][2][4]op_1[1][0][0][0][0][0][0][0][1]u[0]"));
  assert.deepEqual([settle.ask.settle.operation, settle.ask.settle.used, settle.user], ["op_1", null, "u"]);
  const back = readMessage(pinned("[3][12][4]op_1[8][1][3][1][1][1][1][1][7][1][5][1][0][1]d[1][208][15][1][4]op_2[7][1][1][1]d[1][10][1][240][147][9][1]Z[1][10][1][2][0][1][4]op_3[0][0][0][0][0][1]u[0]"));
  assert.deepEqual([back.ask.take_back.lease, back.ask.take_back.row.slice(0, 5), back.ask.take_back.open, back.user], ["op_1", [3, 1, 1, 7, 5], ["op_2"], "u"]);
  const { admission, lease } = readAnswer(pinned("[3][0][0][1][4]op_1[1][10][0][0][1][4]rate[0][1][1]p[1]P[0][0][0][1]d[0][0][0][1][5]daily[0][0][10][4][0][6][1][232][7][2][1][184][23][0]")).decided;
  assert.deepEqual([admission.reservation, admission.lane, lease], ["op_1", "main", null]);
  const next = readAnswer(pinned("[3][1][1][1]p[1]P[0][0][0][1]d[0][0][0][1][5]daily[0][0][10][4][0][6][1][232][7][2][1][4]op_1[5][1][20][1][208][15][1][160][31][1]d[1][1][1][1][3]m-*[1][6]export"));
  assert.deepEqual(next.taken_back.lease, { id: "op_1", calls: 20, tokens: 2_000, lasts: 4_000 });
});

test("a hang-up is as exact as its settlement, which must be one of the things it may have been worth", () => {
  const left = record("a", { result: "left", aborted: true });
  const streamed = { attempts: [{ ...whole, stream: true }] };
  assert.deepEqual(judged(left, story().asks("a").settles("a", [13, 2]), streamed), { costs: [cost(1, 13, 2)], wrong: [] });
  assert.equal(judged(left, story().asks("a").settles("a", [13, 7]), streamed).wrong.length, 1);
  assert.deepEqual(judged(left, story().asks("a"), { attempts: [] }), { costs: [cost(1, 13, 0)], wrong: [] });
});

test("a call refused is free, unless the account let it through: then something is wrong", () => {
  const refused = record("a", { result: "failed", status: 503 });
  const outage = [{ what: "answers of accounts are lost", from: 900, to: 1_500 }];
  assert.deepEqual(judged(refused, story().asks("a").settles("a", null), { attempts: [], spells: outage }), { costs: [{}], wrong: [] });
  assert.equal(judged(refused, story().asks("a"), { attempts: [], spells: outage }).wrong.length, 1);
});

test("given back in vain: the provider failed while the account store was out, and the lease had to end it", () => {
  const failed = record("a", { result: "failed", status: 502 });
  const outage = [{ what: "accounts fail", from: 1_020, to: 1_500 }];
  assert.deepEqual(judged(failed, story().asks("a"), { attempts: [error], spells: outage }), { costs: [cost(1, 13, 0)], wrong: [] });
  assert.equal(judged(failed, story().asks("a"), { attempts: [error] }).wrong.length, 1);
});

test("a call that passed open is booked once, whether or not the account had heard of it", () => {
  assert.deepEqual(judged(record("a"), story().asks("a").books("a", [3, 9])).costs, [cost(1, 3, 9, { failed_open: 1 })]);
  assert.deepEqual(judged(record("a"), story().isRefused("a").books("a", [3, 9])).costs, [cost(1, 3, 9, { failed_open: 1 })]);
});

test("a call is open only if the end of the runtime overlapped it, and then only by what was not seen to be done", () => {
  const under = (lines, rest) => judged(record("a"), lines, { spells: [killed], ...rest });
  assert.deepEqual(under(story().asks("a")).costs, [cost(1, 13, 0)]);
  assert.deepEqual(under(story().asks("a").settles("a", [3, 9], { at: 1_020 })).costs, [cost(1, 3, 9)]);
  assert.deepEqual(under(story().asks("a").settles("a", [3, 9], { lost: true })).costs, [cost(1, 3, 9), cost(1, 13, 0)]);
  assert.deepEqual(under(story().asks("a", { lost: true }), { attempts: [] }).costs, [cost(1, 13, 0), {}]);
  assert.deepEqual(under(story(), { attempts: [] }).costs, [{}]);
  assert.equal(judged(record("a"), story().asks("a"), { spells: [{ ...killed, from: 9_000, to: 9_500 }] }).wrong.length, 1);
});

test("an outage holds a call's settlement up, and a kill after it still catches the call", () => {
  const later = { what: "killed", from: 9_000, to: 9_500 };
  assert.equal(isCaught(record("a"), [later]), false);
  assert.equal(isCaught(record("a"), [{ what: "accounts hang", from: 1_050, to: 5_000 }, later]), true);
  assert.equal(isCaught(record("a"), [{ what: "ledger fails", from: 1_050, to: 5_000 }, later]), false);
  assert.equal(isCaught(record("a"), [{ what: "time passes", from: 1_050, to: 5_000 }]), false);
});

/** Calls of one segment with their costs: `calm` ones, and `caught` ones whose settlement nobody saw arrive. */
function segment(calm, caught) {
  const lists = Array.from({ length: calm }, (_, n) => {
    const lines = story().asks(`c${n}`).settles(`c${n}`, [3, 5 + n], { at: 1_020 });
    return judged(record(`c${n}`), lines, { attempts: [{ ...whole, tokens: [3, 5 + n] }], spells: caught ? [killed] : [] }).costs;
  });
  for (let n = 0; n < caught; n++) lists.push(judged(record(`k${n}`), story().asks(`k${n}`, { lost: true }).settles(`k${n}`, [3, 9], { lost: true }), { spells: [killed] }).costs);
  return lists;
}
const total = (lists) => lists.map((list) => list[0]).reduce(plus, {});
const less = (sum, by) => Object.fromEntries(Object.entries(sum).map(([name, n]) => [name, n - (by[name] ?? 0)]));

test("in a segment that nothing ended, one call lost, doubled or charged a token too much is found out", () => {
  const lists = segment(200, 0);
  const right = total(lists);
  assert.deepEqual(widthOf(lists), { calls: 0, tokens: 0 });
  assert.equal(contradiction(lists, right), undefined);
  for (const one of [lists[0][0], lists[150][0]]) {
    assert.match(contradiction(lists, less(right, one)), /calls 199, must be 200/);
    assert.match(contradiction(lists, plus(right, one)), /calls 201, must be 200/);
  }
  assert.match(contradiction(lists, plus(right, { [`${date} completion`]: 1 })), /completion/);
  assert.match(contradiction(lists, plus(less(right, lists[0][0]), { "2026-12-01 calls": 1, "2026-12-01 prompt": 3, "2026-12-01 completion": 5 })), /2026-12-01/);
});

test("in a segment with a kill that M calls were open at, the loss of N > M is found out, and of one that was not open", () => {
  const lists = segment(200, 3);
  const right = total(lists);
  assert.equal(widthOf(lists).calls, 3);
  const each = cost(1, 3, 9);
  // All that were open may be lost, or be charged their prompt alone.
  assert.equal(contradiction(lists, less(right, plus(plus(each, each), each))), undefined);
  assert.equal(contradiction(lists, plus(less(right, each), cost(1, 13, 0))), undefined);
  // A fourth, whatever it cost.
  assert.match(contradiction(lists, less(right, plus(plus(plus(each, each), each), lists[0][0]))), /calls 199, must be 200 to 203/);
  // One that was not open: its tokens are those of no call that was.
  assert.match(contradiction(lists, less(right, lists[0][0])), /no sum/);
  assert.match(contradiction(lists, less(right, cost(0, 0, 1))), /no sum/);
  assert.match(contradiction(lists, plus(right, each)), /calls 204/);
});

test("what the ledger has grown by is told by day", () => {
  const day = (date, calls, completion_tokens) => ({ date, calls, degraded: 0, failed_open: 0, prompt_tokens: 0, completion_tokens });
  assert.deepEqual(growth([day("2026-11-30", 2, 20)], [day("2026-11-30", 3, 20), day("2026-12-01", 1, 7)], clock), { "2026-11-30 calls": 1, "2026-12-01 calls": 1, "2026-12-01 completion": 7 });
  assert.deepEqual(growth([day("2026-11-30", 2, 20)], [], clock), { "2026-11-30 calls": -2, "2026-11-30 completion": -20 });
});

test("a refused call is counted once, by its policy, and a job is none", () => {
  const counts = (lines, logged, { spells = [], plan = {}, ...rest } = {}) => {
    const one = record("a", rest);
    return countsOf(one, { logged, seen: lines.witness.calls.get("a"), witness: lines.witness, spells, plan });
  };
  const refused = { decision: "refused", policy: "daily" };
  const rejected = { rejected: 1, "by daily": 1 };
  assert.deepEqual(counts(story().isRefused("a"), refused), { counts: [rejected], late: false });
  assert.deepEqual(counts(story().comes("a"), refused), { counts: [rejected], late: false });
  assert.deepEqual(counts(story().asks("a"), { decision: "allowed" }), { counts: [{}], late: false });
  assert.deepEqual(counts(story().isRefused("a"), { decision: "queued" }), { counts: [{ queued: 1 }], late: false });
  assert.deepEqual(counts(story().isRefused("a"), { decision: "refused", policy: null }).counts, [rejected]);
  // Near a kill it may be missing; refused by an isolate it may come later.
  assert.deepEqual(counts(story().isRefused("a"), refused, { spells: [killed] }), { counts: [rejected, {}], late: false });
  assert.deepEqual(counts(story().comes("a"), refused, { spells: [killed] }), { counts: [rejected, {}], late: true });
  // Its caller left before it was answered.
  const left = { aborted: true, result: "left", plan: { daily_limit: 3, rate: {} } };
  assert.deepEqual(counts(story().isRefused("a"), undefined, left), { counts: [rejected, {}], late: false });
  assert.deepEqual(counts(story().comes("a"), undefined, left).counts, [rejected, { rejected: 1, "by rate": 1 }, {}]);
  assert.deepEqual(policiesOf({ daily_limit: null, window: {} }), ["window"]);
});

test("what days were counted up by is told without those that were deleted for their age", () => {
  const day = (date, rejected, queued, refused_by) => ({ date, rejected, queued, refused_by: JSON.stringify(refused_by) });
  const before = [day("2025-01-01", 5, 1, { daily: 5 }), day("2026-11-30", 1, 0, { rate: 1 })];
  const after = [day("2026-11-30", 3, 1, { rate: 1, daily: 2 }), day("2026-12-01", 1, 0, { daily: 1 })];
  assert.deepEqual(countedUp(before, after, clock, 300 * 86_400_000), { rejected: 3, queued: 1, "by daily": 3 });
});

test("a lease that did not come back is charged in full, and a call under it for itself no more", () => {
  const lease = ["lease-1", [40, 2_440, 4_000]];
  const known = (lines, spells) => ({ witness: lines.witness, spells });
  const lines = story().asks("a", { lease }).comes("b", 1_060);
  const [lost, ...none] = lostLeases(lines.witness.leases.values(), known(lines, [killed]));
  assert.equal(none.length, 0);
  assert.deepEqual(costsOfLost(lost, known(lines, [killed])), { costs: [cost(40, 0, 2_440)], wrong: [] });
  assert.equal(costsOfLost(lost, known(lines, [])).wrong.length, 1);
  assert.ok(judged(record("b"), lines, { leases: true, lost: [lost], spells: [killed] }).costs.some((one) => Object.keys(one).length === 0));
  assert.deepEqual(judged(record("b"), lines, { leases: true }).costs, [cost(1, 3, 9)]);
  lines.takesBack("lease-1", 1_070);
  assert.deepEqual(lostLeases(lines.witness.leases.values(), known(lines, [])), []);
});

test("a call that comes back with its lease is charged on the lease's day", () => {
  const midnight = 14 * 3_600_000;
  const lines = story().asks("a", { lease: ["lease-1", [40, 2_440, 4_000]] }).takesBack("lease-1", midnight + 10, ["b"]).settles("b", [3, 9], { at: midnight + 50 });
  const endings = endingsOf(lines.witness.operations.get("op-b"), { witness: lines.witness, spells: [], estimate });
  assert.deepEqual(endings.map((one) => one.cost), [cost(1, 3, 9)]);
});

test("a job that was settled twice is charged once", () => {
  const lines = story().asks("job").settles("job", [3, 9], { lost: true }).settles("job", [3, 9], { at: 5_000 });
  const endings = endingsOf(lines.witness.operations.get("op-job"), { witness: lines.witness, spells: [], estimate });
  assert.deepEqual(new Set(endings.map((one) => JSON.stringify(one.cost))).size, 1);
  assert.deepEqual(endsOf([killed, { what: "time passes" }]), [killed]);
});
