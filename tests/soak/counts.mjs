// What one call must have been counted as besides what it cost: as refused, and by which policy, or as a job. The
// gateway's log says how it was answered, and the witness what its account said. Counts are gathered for some seconds
// before they are stored, so an end of the runtime or an outage of the account store leaves them open.
import { isCaught, meetsOutage } from "./costs.mjs";

const nothing = {};
const refused = (policy) => ({ rejected: 1, [`by ${policy}`]: 1 });
const queued = { queued: 1 };

/** The policies that may refuse a call of a plan. */
export function policiesOf(plan) {
  const names = { daily_limit: "daily", monthly_token_limit: "monthly-tokens", max_concurrent: "concurrency", tokens_per_minute: "tokens-per-minute", rate: "rate", window: "window" };
  return Object.keys(names).filter((field) => plan[field] != null).map((field) => names[field]);
}

/**
 * What a call may have been counted as, and whether it may still be counted later, by whoever refused it: {counts, late}.
 * `known` is {logged: its line in the gateway's log, if its caller saw the head of an answer; seen, witness, spells, plan}.
 */
export function countsOf(record, known) {
  const shaky = isCaught(record, known.spells) || meetsOutage(record, known.spells);
  const said = saidOf(record, known);
  const isRefused = known.logged?.decision === "refused";
  // A call that was to become a job, and for which the queue was out, is answered 503 and not by the policy's name.
  if (isRefused) return counted([refused(known.logged.policy ?? said[0])], shaky, said.length === 0);
  // The note that it is one may be lost, and that it was none before.
  if (known.logged?.decision === "queued") return counted(shaky ? [queued, { ...queued, ...refused("daily") }, refused("daily")] : [queued], shaky);
  if (known.logged) return counted(shaky ? [nothing, ...said.map(refused)] : [nothing]);
  if (said.length > 0) return counted(said.map(refused), true);
  if (!known.seen || known.seen.operations.size > 0) return counted([nothing]);
  // Nobody saw how it was answered, and its account was not asked.
  return counted(policiesOf(known.plan).map(refused), true, true);
}

const counted = (counts, open = false, late = false) => ({ counts: open ? [...counts, nothing] : counts, late: open && late });

/** By which policies the account has said that a call is refused. */
function saidOf({ mark }, { witness }) {
  const operations = [...(witness.calls.get(mark)?.operations ?? [])].map((id) => witness.operations.get(id));
  return [...new Set(operations.flatMap((one) => one?.admits ?? []).map((event) => event.refusedBy).filter(Boolean))];
}

/** What the ledger's days have been counted up by. */
export function countedUp(before, after, now, kept) {
  const up = {};
  const add = (name, n) => (up[name] = (up[name] ?? 0) + n);
  for (const [days, sign] of [[after, 1], [before, -1]]) {
    for (const day of days) {
      // What was deleted for its age was counted all the same.
      if (sign < 0 && Date.parse(day.date) < now - kept && !after.some(({ date }) => date === day.date)) continue;
      add("rejected", sign * day.rejected);
      add("queued", sign * day.queued);
      for (const [policy, n] of Object.entries(JSON.parse(day.refused_by))) add(`by ${policy}`, sign * n);
    }
  }
  return Object.fromEntries(Object.entries(up).filter(([, n]) => n !== 0));
}
