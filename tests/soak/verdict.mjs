// Judges a soak segment by segment. A segment lies between two quiet points. What the ledger has grown by in between must
// be, for every user and day, the sum of what the calls of the segment cost by the provider's log, and the sum of what
// the account was told, both of which are exact but for what an end of the runtime has left open (costs.mjs); and what
// the gateway says of itself must agree at the segment's end. Nothing that is open in one segment makes another one wider.
import parse from "parse-prometheus-text-format";
import { bound } from "./callers.mjs";
import { costsOf, costsOfLease, costsOfLost, endingsOf, endsOf, lostLeases, worthOf } from "./costs.mjs";
import { countedUp, countsOf, policiesOf } from "./counts.mjs";
import { contradiction, distinct, plus } from "./sums.mjs";

const counted = { calls: "calls", degraded: "degraded", failed_open: "failed_open", prompt_tokens: "prompt", completion_tokens: "completion" };
/** Days that are so old may be deleted. */
const kept = 300 * 86_400_000;

export class Verdict {
  differences = [];
  figures = { exact: 0, open: 0, calls: 0, tokens: 0, byLog: 0, bySettlement: 0, openCalls: 0, openTokens: 0, refused: 0, queued: 0, openCounts: 0, lost: 0, overshoot: 0 };
  /** What every job was settled at. */
  #jobs = new Map();
  #judged = new Set();
  #heard = new Set();
  #leases = new Set();
  /** By user: refusals that nobody is sure were counted, and that may still be. */
  #late = new Map();
  /** By plan, what has been judged so far, by the names of daily_usage. */
  #sums = new Map();

  constructor({ gateway, provider, users, chaos, witness, leases, estimate, say }) {
    Object.assign(this, { gateway, provider, users, chaos, witness, leases, estimate, say });
  }

  /** Judges the calls in `records`, all those between the quiet points `before` and `after`. */
  async judge(name, records, before, after) {
    await this.chaos.noteJobs();
    this.witness.read(this.gateway.logs());
    const widths = { calls: 0, tokens: 0 };
    for (const user of this.users) {
      const note = (text) => this.#note(`${name}: ${user.user_id}: ${text}`);
      const theirs = records.filter((record) => record.user === user.user_id);
      const days = [before, after].map((point) => point.days[user.user_id]);
      const told = this.#told(user);
      const lists = [...this.#calls(user, theirs, note), ...this.#ofJobs(user, note), ...this.#ofLeases(user, note)];
      const grown = growth(...days, this.chaos.now());
      for (const [by, one] of [["the provider's log", lists], ["what the account was told", told]]) {
        const why = contradiction(one, grown);
        if (why) note(`by ${by}: ${why}`);
      }
      const up = countedUp(...days, this.chaos.now(), kept);
      const wrong = contradiction(this.#counts(user, theirs), up);
      if (wrong) note(`by what was refused and queued: ${wrong}`);
      this.figures.refused += up.rejected ?? 0;
      this.figures.queued += up.queued ?? 0;
      this.#sum(user, grown, up);
      // Both hold, so the ledger is as narrow as the narrower of them.
      const width = [lists, told].map(widthOf).reduce((a, b) => (b.calls < a.calls ? b : a));
      widths.calls += width.calls;
      widths.tokens += width.tokens;
      this.figures.calls += sumOf(grown, "calls");
      this.figures.tokens += sumOf(grown, "prompt") + sumOf(grown, "completion");
      await this.#agrees(user, after.days[user.user_id], note);
      this.#overshoot(user, after.days[user.user_id], note);
    }
    await this.#metrics((text) => this.#note(`${name}: ${text}`));
    this.figures[widths.calls === 0 ? "exact" : "open"] += 1;
    this.figures.openCalls += widths.calls;
    this.figures.openTokens += widths.tokens;
    this.say(`${name}: ${records.length} calls, ${widths.calls === 0 ? "exact" : `${widths.calls} open by ${widths.tokens} tokens`}, differences so far ${this.differences.length}`);
  }

  /** How many calls and leases of this segment have not been seen to end. */
  unsettled() {
    this.witness.read(this.gateway.logs());
    return this.users.reduce((count, user) => {
      const known = this.#known(user);
      const open = this.#operationsOf(user).filter((one) => endingsOf(one, known).some(({ why }) => why === "lapsed"));
      return count + open.length + lostLeases(this.#leasesOf(user), known).length;
    }, 0);
  }

  #operationsOf({ user_id }) {
    return [...this.witness.operations.values()].filter((one) => one.user === user_id && !this.#heard.has(one.id));
  }

  #note(text) {
    this.differences.push(text);
    this.say(`DIFFERENCE ${text}`);
  }

  /** The costs of all that the account was told and has answered since the last segment. */
  #told(user) {
    const lists = [];
    for (const operation of this.#operationsOf(user)) {
      const endings = endingsOf(operation, this.#known(user));
      // A job that was refused asks again.
      if (endings.some(({ why }) => why !== "refused")) this.#heard.add(operation.id);
      lists.push(endings.map(({ cost }) => cost));
    }
    for (const lease of this.#leasesOf(user)) lists.push(costsOfLease(lease, this.#known(user)));
    return lists.map(distinct);
  }

  #calls(user, records, note) {
    const jobs = new Set([...this.chaos.jobs.values()].map((job) => job.mark));
    const lost = lostLeases(this.#leasesOf(user), this.#known(user));
    return records.map((record) => {
      const { mark } = record;
      this.#log(record, note);
      if (record.job && !this.chaos.jobs.has(record.job)) note(`${mark} was promised a job that is nowhere`);
      // A job's calls of its provider are the job's.
      const attempts = jobs.has(mark) ? [] : this.provider.attempts(mark);
      const { costs, wrong } = costsOf(record, { ...this.#known(user), attempts, seen: this.witness.calls.get(mark), lost });
      for (const text of wrong) note(`${mark} (${record.kind}, ${record.result}, ${record.status ?? "no answer"}) ${text}`);
      if (wrong.length > 0) this.#show(record, attempts);
      if (costs.length === 1) this.figures[worthOf(attempts, record.aborted, this.estimate).length === 1 ? "byLog" : "bySettlement"] += 1;
      return costs;
    });
  }

  /** What the calls were counted as besides what they cost, and what may come late of the segment before. */
  #counts(user, records) {
    const spells = this.chaos.spells;
    const since = Math.max(0, ...endsOf(spells).map(({ to }) => to));
    const late = (this.#late.get(user.user_id) ?? []).filter(({ ended }) => ended > since).map(({ counts }) => counts);
    const found = records.map((record) => {
      const [logged] = this.witness.logged.get(record.requestId) ?? [];
      return { ended: record.ended, ...countsOf(record, { logged, seen: this.witness.calls.get(record.mark), witness: this.witness, spells, plan: user.plan }) };
    });
    this.#late.set(user.user_id, found.filter((one) => one.late));
    this.figures.openCounts += found.filter(({ counts }) => counts.length > 1).length;
    return [...late, ...found.map(({ counts }) => counts)];
  }

  #sum({ plan_id }, grown, up) {
    const sums = this.#sums.get(plan_id) ?? {};
    for (const name of Object.values(counted)) sums[name] = (sums[name] ?? 0) + sumOf(grown, name);
    this.#sums.set(plan_id, plus(sums, up));
  }

  /** What Prometheus is told is what was judged; asked at rest. */
  async #metrics(note) {
    const { status, text } = await this.gateway.admin("/metrics");
    if (status !== 200) return note(`/metrics is ${status}`);
    const families = parse(text);
    const told = (family, labels) => {
      const fits = (one) => Object.entries(labels).every(([name, value]) => one.labels?.[name] === value);
      return (families.find(({ name }) => name === family)?.metrics ?? []).filter(fits).reduce((sum, { value }) => sum + Number(value), 0);
    };
    for (const [plan, sums] of this.#sums) {
      const same = (family, labels, must) => {
        const is = told(family, { plan, ...labels });
        if (is !== must) note(`${family} of ${plan} ${JSON.stringify(labels)} is ${is}, must be ${must}`);
      };
      same("sluice_calls_total", {}, (sums.calls ?? 0) + (sums.rejected ?? 0));
      for (const name of ["degraded", "queued", "failed_open"]) same(`sluice_${name}_total`, {}, sums[name] ?? 0);
      for (const kind of ["prompt", "completion"]) same("sluice_tokens_total", { kind }, sums[kind] ?? 0);
      for (const policy of policiesOf(this.#planOf(plan))) same("sluice_refused_total", { policy }, sums[`by ${policy}`] ?? 0);
    }
  }

  #planOf(plan_id) {
    return this.users.find((user) => user.plan_id === plan_id).plan;
  }

  /** Everything that is known of a call, for whoever looks for what went wrong. */
  #show(record, attempts) {
    const { began, ended } = record;
    const operations = [...(this.witness.calls.get(record.mark)?.operations ?? [])].map((id) => this.witness.operations.get(id));
    const near = this.chaos.spells.filter(({ from, to }) => from < ended + 60_000 && to > began - 10_000);
    this.say(JSON.stringify({ call: record, attempts, operations, near }, (key, value) => (["told", "lease", "signal"].includes(key) ? undefined : value)));
  }

  /** A caller who has seen the head of an answer finds it in the gateway's log, once. */
  #log({ mark, requestId, status }, note) {
    if (status === 500) note(`${mark} was answered 500`);
    if (!requestId) return;
    const logged = (this.witness.logged.get(requestId) ?? []).map((line) => line.status);
    if (logged.length !== 1 || logged[0] !== status) note(`${mark} was answered ${status}, and the log says ${logged.join(", ") || "nothing"}`);
  }

  #known({ plan }) {
    const { witness, leases, estimate } = this;
    return { witness, leases, estimate, spells: this.chaos.spells, degrades: plan.over_quota?.strategy === "degrade" };
  }

  /** A job is charged once, in the segment that it ended in, and by the provider's log. */
  #ofJobs(user, note) {
    const lists = [];
    for (const job of this.chaos.jobs.values()) {
      if (job.user_id !== user.user_id) continue;
      const fresh = [...this.witness.operations.values()].filter(({ id }) => id.split(":")[0] === job.job_id && !this.#judged.has(id));
      for (const operation of fresh) {
        const endings = endingsOf(operation, this.#known(user));
        if (endings.every(({ why }) => why === "refused")) continue;
        this.#judged.add(operation.id);
        lists.push(this.#endOfJob(job, endings, note));
      }
      this.#closed(job, note);
    }
    return lists;
  }

  #endOfJob(job, endings, note) {
    // A kill may have let it run twice.
    const worth = this.provider.attempts(job.mark).flatMap((attempt) => worthOf([attempt], false, this.estimate)).map(String);
    for (const { used } of endings.filter(({ why }) => why === "told")) {
      if (!worth.includes(`1,${used}`)) note(`${job.job_id} was settled at ${used}, and the provider's log says ${worth.join(" or ")}`);
      this.#jobs.set(job.job_id, new Set(this.#jobs.get(job.job_id)).add(String(used)));
    }
    const ended = endings.filter(({ why }) => why !== "lapsed");
    if (ended.length === 0) note(`${job.job_id} was let through and never settled`);
    return (ended.length > 0 ? ended : endings).map(({ cost }) => cost);
  }

  #closed({ job_id, status, prompt_tokens, completion_tokens }, note) {
    const told = [...(this.#jobs.get(job_id) ?? ["nothing"])].join(" and ");
    const must = status === "succeeded" ? `${prompt_tokens},${completion_tokens}` : "nothing";
    if (told !== must) note(`${job_id} has ${status}, which costs ${must}, and was settled at ${told}`);
  }

  #leasesOf(user) {
    return [...this.witness.leases.values()].filter((lease) => lease.user === user.user_id && !this.#leases.has(lease.id));
  }

  #ofLeases(user, note) {
    const theirs = this.#leasesOf(user);
    const lost = lostLeases(theirs, this.#known(user));
    for (const lease of theirs) this.#leases.add(lease.id);
    this.figures.lost += lost.length;
    return lost.map((lease) => {
      const { costs, wrong } = costsOfLost(lease, this.#known(user));
      wrong.forEach(note);
      return costs;
    });
  }

  /** Account, quota page, `user_quotas` and `daily_usage` say one and the same; asked again if a day ended meanwhile. */
  async #agrees(user, days, note) {
    const date = () => new Date(this.chaos.now()).toISOString().slice(0, 10);
    let found;
    for (let asked; asked !== date(); ) {
      asked = date();
      found = [];
      await this.#compare(user, days, (text) => found.push(text));
    }
    found.forEach(note);
  }

  async #compare(user, days, note) {
    const quota = await this.gateway.call("/api/quota", { key: user.key });
    if (quota.status !== 200) return note(`the quota page is ${quota.status}`);
    const row = await this.gateway.quotaRow(user.user_id);
    if (!row) return days.length > 0 && note("the ledger has no row");
    const now = new Date(this.chaos.now()).toISOString();
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
    for (const day of days) same(`refusals of ${day.date} by policy and in all`, Object.values(JSON.parse(day.refused_by)).reduce((a, b) => a + b, 0), day.rejected);
    for (const { name, reserved } of quota.body.policies) if (reserved !== 0) note(`${name} still holds ${reserved}`);
  }

  /** No day and no month passes the highest limit that was in force in it; calls that passed an outage have their own bound. */
  #overshoot({ plan }, days, note) {
    const over = (text) => {
      this.figures.overshoot += 1;
      note(text);
    };
    const months = new Map();
    for (const day of days) {
      const began = Date.parse(day.date);
      const most = plan.daily_limit === null ? Infinity : this.chaos.highest(plan, "daily_limit", began, began + 86_400_000);
      const plain = day.calls - day.degraded - day.failed_open;
      if (plain > most) over(`${day.date}: ${plain} calls of ${most}`);
      const month = months.get(day.date.slice(0, 7)) ?? { tokens: 0, open: 0 };
      month.tokens += day.prompt_tokens + day.completion_tokens;
      month.open += day.failed_open;
      months.set(day.date.slice(0, 7), month);
    }
    for (const [name, { tokens, open }] of months) {
      const began = Date.parse(`${name}-01`);
      const most = this.chaos.highest(plan, "monthly_token_limit", began, began + 32 * 86_400_000) + open * (this.estimate + bound);
      if (tokens > most) over(`${name}: ${tokens} tokens of ${most}, ${open} calls of outages among them`);
    }
  }
}

/** What the ledger's days have grown by, as a cost. */
export function growth(before, after, now) {
  const grown = {};
  for (const date of new Set([...before, ...after].map((day) => day.date))) {
    const [was, is] = [before, after].map((days) => days.find((day) => day.date === date));
    if (!is && Date.parse(date) < now - kept) continue;
    for (const [column, name] of Object.entries(counted)) {
      const more = (is?.[column] ?? 0) - (was?.[column] ?? 0);
      if (more !== 0) grown[`${date} ${name}`] = more;
    }
  }
  return grown;
}

/** How many of the lists are open, and by how many tokens. */
export function widthOf(lists) {
  const open = lists.filter((list) => list.length > 1);
  const tokens = open.map((list) => {
    const each = list.map((cost) => sumOf(cost, "prompt") + sumOf(cost, "completion"));
    return Math.max(...each) - Math.min(...each);
  });
  return { calls: open.length, tokens: tokens.reduce((a, b) => a + b, 0) };
}

const sumOf = (cost, name) => Object.entries(cost).reduce((sum, [key, n]) => (key.endsWith(` ${name}`) ? sum + n : sum), 0);
