// What one call may have cost: a list of costs, mostly of one. The provider's log says what the call was worth, the
// witness what its account was told and has answered, and the spells what may have kept it from being told. Where these
// contradict each other something is wrong with this one call, and `wrong` says what.
import { distinct, plus } from "./sums.mjs";

/** How long after its end a call's settlement may still be under way: it rides with a message, which may be lost. */
const settling = 7_000;
/** How long after an outage of the account store what it held up may still be. */
const recovering = 12_000;
/** How much later than it ends a lease may still have let a call pass that reaches its provider. */
const slack = 1_000;
/** How long the account waits for a lease beyond its end. */
const grace = 6_000;

const isEnd = ({ what }) => what === "killed" || what === "restarted";
const hidesAccounts = ({ what }) => /account|moved/.test(what);
const shutsAccounts = ({ what }) => /accounts (fail|hang)/.test(what);
const overlaps = ({ from, to }, since, until) => from <= until && to >= since;

/** Ends of the runtime among spells. */
export const endsOf = (spells) => spells.filter(isEnd);

/**
 * What a call was worth by the provider's log alone: a list of [calls, prompt, completion]. `left`: its caller may have
 * gone before the end, and then what was relayed until then is charged, or the prompt alone.
 */
export function worthOf(attempts, left, estimate) {
  const answered = attempts.filter((attempt) => attempt.end !== "error");
  if (answered.length > 0) return worthOfAnswer(answered.at(-1), left, estimate);
  const nothing = [0, 0, 0];
  // It may have been admitted and not dispatched any more.
  return left ? [nothing, [1, estimate, 0]] : [nothing];
}

function worthOfAnswer(attempt, left, estimate) {
  const { end, tokens, pieces, stream, anthropic } = attempt;
  const [prompt, completion] = tokens ?? [];
  // Anthropic tells the prompt, and one token, at the beginning of a stream.
  const relayed = (n) => (tokens && anthropic ? [1, prompt, 1 + n] : [1, estimate, n]);
  const whole = tokens ? [1, prompt, completion] : [1, estimate, pieces];
  const cut = end === "cut" ? relayed(attempt.relayed) : whole;
  if (!left) return [cut];
  if (!stream) return [[1, estimate, 0], whole];
  const most = end === "cut" ? attempt.relayed : pieces;
  return [[1, estimate, 0], ...Array.from({ length: most + 1 }, (_, n) => relayed(n)), cut];
}

/** Whether an end of the runtime overlapped a call, from its beginning to its settlement. */
export function isCaught(record, spells) {
  const settled = settledBy(record, spells);
  return endsOf(spells).some((end) => overlaps(end, record.began, settled));
}

/** When the account must have been told of a call's end, if nothing ends the runtime. */
function settledBy({ began, ended }, spells) {
  const outages = spells.filter(hidesAccounts).sort((a, b) => a.from - b.from);
  return outages.reduce((by, spell) => (overlaps(spell, began, by) ? Math.max(by, spell.to + recovering) : by), ended + settling);
}

/** Whether an outage of the account store may have held up what a call's account was to be told. */
export const meetsOutage = (record, spells) => spells.some((spell) => hidesAccounts(spell) && overlaps(spell, record.began, record.ended + settling));

/**
 * The costs of a call. `known` is the rest that is known: {attempts, seen (by the witness), witness, spells, estimate,
 * leases (are on), lost (leases of this user that may not have come back), degrades}.
 */
export function costsOf(record, known) {
  const { attempts, seen, spells, estimate } = known;
  const caught = isCaught(record, spells);
  // Whoever has seen the whole answer was relayed the whole.
  const left = record.aborted || (caught && record.result !== "ok");
  const worth = worthOf(attempts, left, estimate);
  const wrong = attempts.filter((attempt) => attempt.end !== "error").length > 1 ? ["was dispatched twice"] : [];
  if (record.result === "ok" && attempts.length === 0) wrong.push("was answered without the provider");
  if (!seen || seen.came.length === 0) return { costs: [{}], wrong: attempts.length > 0 ? [...wrong, "was never seen to come"] : wrong };
  // The account may never have heard of it.
  const operations = [...seen.operations].map((id) => known.witness.operations.get(id)).filter(Boolean);
  const asked = seen.operations.size > 0 || !known.leases;
  const one = asked ? costsOfAsked(record, operations, { ...known, caught, worth }) : costsOfLeased(record, { ...known, caught, worth });
  return { costs: one.costs, wrong: [...wrong, ...one.wrong] };
}

/** Of a call whose account was asked. */
function costsOfAsked(record, operations, known) {
  const { worth, caught, spells, estimate } = known;
  const wrong = [];
  let costs = [{}];
  for (const operation of operations) {
    const endings = endingsOf(operation, known);
    for (const { why, used } of endings) {
      if (why === "told" && !has(worth, [1, ...used])) wrong.push(`was settled at ${used}, and the provider's log says ${words(worth)}`);
    }
    const lapses = caught || mayLapse(record, known.attempts, spells);
    const possible = endings.filter(({ why }) => (why === "lapsed" ? lapses : why === "told" || caught || has(worth, [0, 0, 0])));
    if (possible.length === 0) wrong.push(`came to ${[...new Set(endings.map(({ why }) => why))].join(" or ")}, and the provider's log says ${words(worth)}`);
    costs = costs.flatMap((before) => (possible.length > 0 ? possible : endings).map(({ cost }) => plus(before, cost)));
  }
  if (operations.length === 0 && !caught && !has(worth, [0, 0, 0])) wrong.push("was dispatched and its account never asked");
  return { costs: distinct(costs), wrong };
}

/** Whether a call that was admitted may never have been settled although nothing ended the runtime. */
function mayLapse(record, attempts, spells) {
  // Left before it was dispatched, or given back in vain.
  if (attempts.length === 0) return record.aborted || spells.some((spell) => shutsAccounts(spell) && overlaps(spell, record.ended, record.ended + recovering));
  return attempts.every((attempt) => attempt.end === "error") && meetsOutage(record, spells);
}

/** What an operation may have come to: a list of {why, used, cost}; why is told, released, lapsed or refused. */
export function endingsOf(operation, { witness, spells, estimate, degrades = false }) {
  const ends = endsOf(spells);
  const done = (event) => witness.done(event, ends);
  const passed = operation.admits.filter((event) => !event.answered || event.admission?.reservation);
  const fates = [...passed, ...operation.carried].map(done);
  const fate = fates.includes("yes") ? "yes" : fates.includes("maybe") ? "maybe" : "no";
  const list = [];
  if (fate !== "no") {
    const lanes = new Set(passed.filter((event) => event.admission).map((event) => event.admission.lane));
    const unknown = lanes.size === 0 ? (degrades ? ["main", "degraded"] : ["main"]) : [...lanes];
    // A call that comes back with its lease is of the lease's day.
    const begun = [...passed, ...operation.carried.map((event) => event.lease?.granted[0] ?? event)];
    for (const date of datesOf(begun)) for (const lane of unknown) list.push(...admittedEndings(operation, date, lane === "degraded", done, estimate));
  }
  if (fate !== "yes") list.push(...unknownEndings(operation, done));
  return list;
}

function admittedEndings({ ends }, date, degraded, done, estimate) {
  const charged = (prompt, completion) => on(date, { calls: 1, degraded: degraded ? 1 : 0, prompt, completion });
  const list = [];
  for (const event of ends) {
    const { used, booked = 0 } = event;
    const bookings = booked > 0 ? [on(dateOf(event.at), { failed_open: booked })] : [{}];
    for (const booking of bookings) list.push(used ? { why: "told", used, cost: plus(charged(...used), booking) } : { why: "released", cost: {} });
    if (done(event) === "yes") return list;
  }
  return [...list, { why: "lapsed", used: [estimate, 0], cost: charged(estimate, 0) }];
}

/** Of an operation that its account had not let through: only a booking counts. */
function unknownEndings({ ends }, done) {
  const list = [];
  for (const event of ends.filter(({ booked }) => booked !== undefined)) {
    const { used: [prompt, completion], booked, at } = event;
    // Of a call that was counted before and is forgotten, nothing is left to be booked.
    const cost = booked > 0 ? on(dateOf(at), { calls: booked, failed_open: booked, prompt, completion }) : {};
    list.push({ why: booked > 0 ? "told" : "refused", used: event.used, cost });
    if (done(event) === "yes") return list;
  }
  return [...list, { why: "refused", cost: {} }];
}

/** Of a call that may have passed by a lease, or was refused without a word to the account. */
function costsOfLeased(record, { attempts, seen, spells, estimate, lost, caught, worth }) {
  const until = attempts[0]?.at ?? record.ended;
  const dates = [...new Set([seen.came[0].now, attempts[0]?.now ?? seen.came[0].now].map(dateOf))];
  const under = lost.filter((lease) => overlaps(lease, seen.came[0].witness, until));
  const list = [...worth];
  if (caught || under.length > 0) list.push([0, 0, 0]);
  if (caught || (attempts.length > 0 && meetsOutage(record, spells))) list.push([1, estimate, 0]);
  const costs = list.flatMap(([calls, prompt, completion]) => dates.map((date) => on(date, { calls, prompt, completion })));
  return { costs: distinct(costs), wrong: [] };
}

/** The leases that may not have come back: {lease, from, to (while calls may have passed by it), maybe}. */
export function lostLeases(leases, { witness, spells }) {
  const ends = endsOf(spells);
  const lost = [];
  for (const lease of leases) {
    const [returned, granted] = [lease.returned, lease.granted].map((events) => events.map((event) => witness.done(event, ends)));
    if (returned.includes("yes")) continue;
    const from = lease.granted[0].asked.at;
    const sure = granted.includes("yes") && returned.length === 0;
    lost.push({ lease, from, to: from + lease.lasts + slack, sure });
  }
  return lost;
}

/** The costs of a lease that did not come back: it is charged in full. */
export function costsOfLost({ lease, from, sure }, { spells }) {
  const full = datesOf(lease.granted.slice(0, 1)).map((date) => on(date, { calls: lease.calls, prompt: 0, completion: lease.tokens }));
  const by = from + lease.lasts + grace + settling;
  const excused = spells.some((spell) => (isEnd(spell) || hidesAccounts(spell)) && overlaps(spell, from, by));
  return { costs: sure ? full : [{}, ...full], wrong: excused ? [] : [`a lease of ${lease.calls} calls never came back`] };
}

/** The costs of a lease by the word of its account: what it came back with, or all of it. Calls under way in it are operations. */
export function costsOfLease(lease, { witness, spells }) {
  const ends = endsOf(spells);
  const fates = lease.returned.map((event) => witness.done(event, ends));
  const dates = datesOf(lease.granted.slice(0, 1));
  const [back] = lease.returned;
  const returned = back ? dates.map((date) => on(date, { calls: back.ended, prompt: back.used[0], completion: back.used[1] })) : [];
  if (fates.includes("yes")) return returned;
  return [...returned, ...costsOfLost({ lease, from: 0, sure: lostLeases([lease], { witness, spells })[0].sure || returned.length > 0 }, { spells }).costs];
}

const has = (list, wanted) => list.some((one) => one.every((n, i) => n === wanted[i]));
const words = (worth) => worth.map((one) => one.join("/")).join(" or ");

const dateOf = (now) => new Date(now).toISOString().slice(0, 10);
const datesOf = (events) => [...new Set(events.flatMap(({ asked, answered }) => [asked.now, ...(answered ? [answered.now] : [])]).map(dateOf))];

function on(date, numbers) {
  return Object.fromEntries(Object.entries(numbers).filter(([, n]) => n !== 0).map(([name, n]) => [`${date} ${name}`, n]));
}
