// What befalls the gateway of a soak: faults at its bindings, kills, restarts with another clock, moved accounts, edited
// plans. Every spell is noted, so that the verdict knows which calls it may have touched.
import { setTimeout as pause } from "node:timers/promises";
import { signal } from "../../scripts/lib/processes.mjs";

const faults = [
  ["ledger fails", [{ binding: "DB", mode: "error" }]],
  ["ledger hangs", [{ binding: "DB", mode: "hang", ms: 20_000 }]],
  ["ledger is slow", [{ binding: "DB", mode: "slow", ms: 400 }]],
  ["ledger says it wrote", [{ binding: "DB", mode: "garbage", op: "batch", match: "user_quotas" }]],
  ["key cache fails", [{ binding: "CACHE", mode: "error" }]],
  ["accounts fail", [{ binding: "ACCOUNTS", mode: "error" }]],
  ["accounts hang", [{ binding: "ACCOUNTS", mode: "hang", ms: 20_000 }]],
  ["accounts are slow", [{ binding: "ACCOUNTS", mode: "slow", ms: 300 }]],
  ["answers of accounts are lost", [{ binding: "ACCOUNTS", mode: "commit-then-error" }]],
  ["queues fail", [{ binding: "TASK_QUEUE", mode: "error" }, { binding: "NOTIFY_QUEUE", mode: "error" }]],
  ["ledger and accounts fail", [{ binding: "DB", mode: "error" }, { binding: "ACCOUNTS", mode: "error" }]],
];

/** How long it takes to read what a runtime has written that was stopped. */
const reading = 100;
/** How long an edited plan may not be in force yet. */
const editing = 10_000;

/** A step of the soak's own that takes longer has hung, and the soak has failed. */
export function inTime(work) {
  return Promise.race([work, pause(200_000, undefined, { ref: false }).then(() => Promise.reject(new Error("a step of the soak hangs")))]);
}

export class Chaos {
  /** Spells: {what, from, to} in real time. */
  spells = [];
  counts = { kills: 0, clocks: 0, moved: 0, edits: 0, faults: 0, ticks: 0 };
  offset = 0;
  /** Every job's row as it was last seen: the gateway deletes those that ended long ago, and a month is soon over here. */
  jobs = new Map();
  #limits = new Map();

  constructor({ gateway, rng, users, say }) {
    Object.assign(this, { gateway, rng, users, say });
    for (const { plan } of users) this.#limits.set(plan.plan_id, [{ at: 0, values: [plan[edited(plan)]] }]);
    this.#ends = this.#jumps();
  }

  #ends;

  /** The gateway's clock. */
  now = () => Date.now() + this.offset;

  /** Smaller mishaps, one after the other, while calls come. */
  async mishaps(count) {
    const kinds = [() => this.#fault(), () => this.#fault(), () => this.#move(), () => this.#edit(), () => this.#tick()];
    for (let n = 0; n < count; n++) {
      await pause(this.rng.between(300, 2_000));
      await inTime(this.rng.pick(kinds)());
    }
  }

  /** The end of the runtime: a kill, or a restart with the clock just before the end of a day or a month. */
  end() {
    return inTime(this.rng.chance(0.5) ? this.#kill() : this.#step());
  }

  /** 8 s before the next end of a day, then of a month, and so on. */
  *#jumps() {
    for (let i = 0; ; i++) {
      const now = new Date(this.now());
      const end = i % 2 === 0 ? Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate() + 1) : Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1);
      yield end - 8_000 - now;
    }
  }

  /** The gateway's time of day. */
  #clock() {
    return new Date(this.now()).toISOString().slice(0, 19);
  }

  async #spell(what, act) {
    const spell = { what, from: Date.now(), to: Infinity };
    this.spells.push(spell);
    this.say(`${this.#clock()} ${what}`);
    try {
      return await act();
    } finally {
      spell.to = Date.now();
    }
  }

  async #fault() {
    const [what, rules] = this.rng.pick(faults);
    this.counts.faults += 1;
    await this.#spell(what, async () => {
      await this.gateway.faults(rules);
      await pause(this.rng.between(500, 6_000));
      await this.gateway.noFaults();
    });
  }

  async #kill() {
    this.counts.kills += 1;
    await this.#spell("killed", async () => {
      await this.#kill9();
      await this.gateway.start();
    });
  }

  /** The runtime is stopped first, so that nothing is lost of what it has written until then. */
  async #kill9() {
    for (const pid of this.gateway.pids) signal(pid, "SIGSTOP");
    await pause(reading);
    await this.gateway.kill9();
  }

  async #step() {
    this.counts.clocks += 1;
    await this.noteJobs();
    await this.#forward("restarted", this.#ends.next().value);
  }

  /** Time passes while nobody calls. */
  async wait(span) {
    await this.noteJobs();
    await this.#forward("time passes", span);
  }

  async #forward(what, span) {
    await this.#spell(what, async () => {
      await this.#kill9();
      this.offset += span;
      await this.gateway.restart({ vars: { CLOCK_OFFSET_MS: String(this.offset) } });
    });
    this.say(`${this.#clock()} is the time now`);
  }

  async noteJobs() {
    const { results } = await this.gateway.d1.prepare("SELECT job_id, user_id, status, closed, prompt_tokens, completion_tokens, body FROM jobs").all();
    for (const row of results) this.jobs.set(row.job_id, { ...row, mark: /call-\d+/.exec(row.body)?.[0] });
  }

  async #move() {
    this.counts.moved += 1;
    const { user_id } = this.rng.pick(this.users);
    await this.#spell(`moved ${user_id}`, () => this.gateway.account(user_id).evict());
  }

  async #edit() {
    this.counts.edits += 1;
    this.say(`${this.#clock()} a plan is edited`);
    const { plan } = this.rng.pick(this.users);
    const field = edited(plan);
    const value = this.rng.between(Math.ceil(plan[field] / 2), plan[field]);
    const { status } = await this.gateway.admin(`/admin/plans/${plan.plan_id}`, { method: "PATCH", json: { [field]: value } });
    const history = this.#limits.get(plan.plan_id);
    // An edit that was not confirmed may be in force all the same.
    history.push({ at: this.now(), values: status === 200 ? [value] : [...history.at(-1).values, value] });
  }

  /** The highest value of a plan's limit that may have been in force between two instants of the gateway's clock. */
  highest(plan, field, from, to) {
    if (field !== edited(plan)) return plan[field];
    const history = this.#limits.get(plan.plan_id);
    const began = history.findLastIndex(({ at }) => at <= from - editing);
    return Math.max(...history.slice(Math.max(began, 0)).filter(({ at }, i) => i === 0 || at <= to).flatMap(({ values }) => values));
  }

  async #tick() {
    this.counts.ticks += 1;
    this.say(`${this.#clock()} the clock ticks`);
    await this.gateway.scheduled();
  }
}

/** The limit of a plan that is edited in a soak. */
const edited = (plan) => (plan.daily_limit === null ? "monthly_token_limit" : "daily_limit");
