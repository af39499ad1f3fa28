// What every user must have been charged, by what the callers saw and the provider did, against what the gateway says.
//
// A call is exact unless something happened that is documented to leave it open: then it is a range, and the sum of
// these ranges is reported. Charges are compared by user, as sums, so a small loss can hide in a wide sum of ranges.
// Everything the gateway says of itself has to agree exactly.
import { setTimeout as pause } from "node:timers/promises";

/** Most tokens one call of a soak can cost: what is reserved for it. */
const most = 48 + 24;
/** Most calls of one lease. */
const mostLeased = 512;
/** How long after its end a call's settlement may still be under way. */
const settling = 5_000;
/** How long after an outage of the account store what it held up may still be. */
const recovering = 8_000;

const openEnds = (record) => ["left", "broken"].includes(record.result);

/** {calls: [least, most], tokens: [least, most], exact} of one call. */
export function expected(record, attempts, touched) {
  if (record.job) return null;
  const answered = attempts.findLast((attempt) => attempt.end !== "error");
  if (touched) return range(0, 1, 0, most);
  if (attempts.length === 0) return openEnds(record) ? range(0, 1, 0, most) : range(0, 0, 0, 0);
  if (record.result === "ok" && answered) return answered.end === "whole" ? range(1, 1, answered.tokens, answered.tokens) : range(1, 1, 1, most);
  if (openEnds(record)) return answered ? range(1, 1, 1, most) : range(0, 1, 0, most);
  if (!answered) return range(0, 0, 0, 0);
  return range(0, 1, 0, most);
}

function range(leastCalls, mostCalls, leastTokens, mostTokens) {
  return { calls: [leastCalls, mostCalls], tokens: [leastTokens, mostTokens], exact: leastCalls === mostCalls && leastTokens === mostTokens };
}

/**
 * Whether an end of the runtime may have caught a call before it was settled. While the account store is out, and for
 * a moment after, all that has ended since may still wait.
 */
export function touches(record, spells) {
  const outages = spells.filter(({ what }) => /accounts/.test(what));
  return spells.some((end) => {
    if (!["killed", "restarted"].includes(end.what) || record.began > end.to) return false;
    const held = outages.filter((one) => one.from <= end.from && one.to >= end.from - recovering);
    const since = Math.min(end.from, ...held.map((one) => one.from)) - settling;
    return record.ended >= since;
  });
}

/** Given back in vain: the provider failed while the account store was out, and the lease had to end it. */
export function releasedInVain(record, attempts, spells) {
  const failed = attempts.length > 0 && attempts.every((attempt) => attempt.end === "error");
  return failed && spells.some(({ what, from, to }) => /account/.test(what) && from <= record.ended + settling && to >= record.began);
}

/** The most that leases can be charged beyond their calls: what did not come back when something ended is taken for spent. */
export function lostLeases(spells) {
  const ends = spells.filter(({ what }) => ["killed", "restarted"].includes(what) || /accounts/.test(what));
  // One lease is out, and one may be on its way back.
  const calls = ends.length * 2 * mostLeased;
  return range(0, calls, 0, calls * most);
}

/** Compares everything; gives the differences, one sentence each, and the figures. */
export async function judge({ gateway, provider, records, users, chaos, limits, leases }) {
  const differences = [];
  const figures = { exact: 0, bounded: 0, openCalls: 0, openTokens: 0, jobs: 0, charged: 0, tokens: 0 };
  await chaos.noteJobs();
  for (const user of users) {
    const note = (text) => differences.push(`${user.user_id}: ${text}`);
    const days = await gateway.usageRows(user.user_id);
    const jobs = [...chaos.jobs.values()].filter((job) => job.user_id === user.user_id);
    await agrees(gateway, user, days, chaos, note);
    const sum = (field) => days.reduce((total, row) => total + row[field], 0);
    const charged = { calls: sum("calls"), tokens: sum("prompt_tokens") + sum("completion_tokens") };
    const must = { calls: [0, 0], tokens: [0, 0] };
    const add = (one) => ["calls", "tokens"].forEach((unit) => [0, 1].forEach((end) => (must[unit][end] += one[unit][end])));
    for (const record of records.filter((one) => one.user === user.user_id)) {
      const attempts = provider.attempts(record.mark);
      if (record.job && !chaos.jobs.has(record.job)) note(`${record.mark} was promised a job that is nowhere`);
      const killed = touches(record, chaos.spells);
      if (record.status === 500 && !killed) note(`${record.mark} was answered 500`);
      const open = killed || releasedInVain(record, attempts, chaos.spells);
      const one = expected(record, attempts, open);
      if (!one) continue;
      add(one);
      figures[one.exact ? "exact" : "bounded"] += 1;
      figures.openCalls += one.calls[1] - one.calls[0];
      figures.openTokens += one.tokens[1] - one.tokens[0];
    }
    for (const job of jobs) add(ofJob(job));
    if (leases) add(lostLeases(chaos.spells));
    figures.jobs += jobs.length;
    figures.charged += charged.calls;
    figures.tokens += charged.tokens;
    for (const unit of ["calls", "tokens"]) {
      const [least, greatest] = must[unit];
      if (charged[unit] < least || charged[unit] > greatest) note(`charged ${charged[unit]} ${unit}, must be ${least} to ${greatest}`);
    }
    overshoot(user, days, limits, note);
  }
  return { differences, figures };
}

/** A job is charged once if it succeeded, by what its row says, and not at all otherwise. */
function ofJob({ status, prompt_tokens, completion_tokens, job_id }) {
  if (status === "running") throw new Error(`job ${job_id} still runs`);
  if (status !== "succeeded") return range(0, 0, 0, 0);
  const tokens = prompt_tokens + completion_tokens;
  return range(1, 1, tokens, tokens);
}

/** Account, quota page, `user_quotas` and `daily_usage` say one and the same. */
async function agrees(gateway, user, days, chaos, note) {
  const quota = await gateway.call("/api/quota", { key: user.key });
  if (quota.status !== 200) return note(`the quota page is ${quota.status}`);
  const row = await gateway.quotaRow(user.user_id);
  if (!row) return note("the ledger has no row");
  const now = new Date(chaos.now()).toISOString();
  const today = days.find((day) => day.date === now.slice(0, 10));
  const month = days.filter((day) => day.date.startsWith(now.slice(0, 7)));
  const tokens = month.reduce((total, day) => total + day.prompt_tokens + day.completion_tokens, 0);
  const plain = (today?.calls ?? 0) - (today?.degraded ?? 0);
  const same = (what, ...values) => new Set(values).size > 1 && note(`${what}: ${values.join(" / ")}`);
  const policy = (name) => quota.body.policies.find((one) => one.name === name);
  // A row whose period is over is of that period; the account has begun another one.
  const runs = (end) => new Date(end) > new Date(now);
  if (policy("daily")) same("calls of today by account, row and day", policy("daily").used, ...(runs(row.reset_at) ? [row.used_today] : []), plain);
  if (policy("monthly-tokens")) same("tokens of the month by account, row and days", policy("monthly-tokens").used, ...(runs(row.month_reset_at) ? [row.tokens_used_this_month] : []), tokens);
  for (const { name, reserved } of quota.body.policies) if (reserved !== 0) note(`${name} still holds ${reserved}`);
}

/** No day and no month passes the highest limit that was in force; calls that passed an outage have their own bound. */
function overshoot(user, days, limits, note) {
  const { daily, monthly } = limits(user);
  const months = new Map();
  for (const day of days) {
    const plain = day.calls - day.degraded - day.failed_open;
    if (daily !== null && plain > daily) note(`${day.date}: ${plain} calls of ${daily}`);
    const month = months.get(day.date.slice(0, 7)) ?? { tokens: 0, open: 0 };
    month.tokens += day.prompt_tokens + day.completion_tokens;
    month.open += day.failed_open;
    months.set(day.date.slice(0, 7), month);
  }
  for (const [name, { tokens, open }] of months) {
    if (tokens > monthly + open * most) note(`${name}: ${tokens} tokens of ${monthly}, and ${open} calls of outages`);
  }
}

/** Nothing is under way any more and nothing waits to be published, booked or told. */
export async function quiesce({ gateway, chaos, users }) {
  // Every lease of a call that was killed ends within five minutes.
  await chaos.restart(6 * 60_000);
  const waiting = async () => {
    const open = await gateway.d1.prepare("SELECT COUNT(*) AS n FROM open_calls WHERE booked_at_ms IS NULL").first("n");
    const running = await gateway.d1.prepare("SELECT COUNT(*) AS n FROM jobs WHERE status = 'running' OR (finished_at_ms IS NOT NULL AND closed = 0)").first("n");
    return { open, running };
  };
  for (let round = 0; round < 30; round++) {
    await gateway.scheduled();
    for (const user of users) {
      await gateway.call("/api/quota", { key: user.key });
      await gateway.account(user.user_id).runAlarm();
    }
    const { open, running } = await waiting();
    const drift = await gateway.admin("/admin/reconcile", { json: {} });
    if (open + running === 0 && drift.status === 200 && drift.body.drifted === 0 && round >= 2) return;
    await pause(1_000);
  }
  throw new Error(`still waiting after all: ${JSON.stringify(await waiting())}`);
}
