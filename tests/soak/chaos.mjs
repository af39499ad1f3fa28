// What befalls the gateway of a soak: faults at its bindings, kills, restarts with another clock, moved accounts, edited
// plans. Every spell is noted, so that the verdict knows which calls it may have touched.
import { setTimeout as pause } from "node:timers/promises";


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

/** A step of the soak's own that takes longer has hung, and the soak has failed. */
export function inTime(work) {
  return Promise.race([work, pause(200_000, undefined, { ref: false }).then(() => Promise.reject(new Error("a step of the soak hangs")))]);
}

export class Chaos {
  /** Spells: {what, from, to} in real time. */
  spells = [];
  counts = { kills: 0, restarts: 0, moved: 0, edits: 0, faults: 0, ticks: 0 };
  offset = 0;
  /** Every job's row as it was last seen: the gateway deletes those that ended long ago, and a month is soon over here. */
  jobs = new Map();

  constructor({ gateway, rng, users, say }) {
    Object.assign(this, { gateway, rng, users, say });
  }

  /** The gateway's clock. */
  now = () => Date.now() + this.offset;

  /** Rounds of smaller mishaps, each ended by the end of the runtime, until `running()` no longer holds. */
  async rage(running) {
    const jumps = this.#jumps();
    const mishaps = [() => this.#fault(), () => this.#fault(), () => this.#move(), () => this.#edit(), () => this.#tick()];
    const ends = [() => this.#kill(), () => this.#jump(jumps)];
    while (running()) {
      for (let n = this.rng.between(2, 6); n > 0 && running(); n--) await this.#do(this.rng.pick(mishaps), running);
      // Sometimes what is under way has the time to end before, sometimes not.
      await pause(this.rng.pick([0, 1_000, 9_000]));
      await this.#do(this.rng.pick(ends), running);
    }
  }

  async #do(act, running) {
    await pause(this.rng.between(500, 3_000));
    if (running()) await inTime(act());
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
      await this.gateway.kill9();
      await this.gateway.start();
    });
  }

  async #jump(jumps) {
    this.counts.restarts += 1;
    await this.restart(jumps.next().value);
  }

  /** Restarts with the clock so much later. */
  restart(later) {
    return this.#spell("restarted", async () => {
      await this.noteJobs();
      this.offset += later;
      this.say(`${this.#clock()} is the time after a restart`);
      await this.gateway.restart({ vars: { CLOCK_OFFSET_MS: String(this.offset) } });
    });
  }

  async noteJobs() {
    const { results } = await this.gateway.d1.prepare("SELECT job_id, user_id, status, prompt_tokens, completion_tokens FROM jobs").all();
    for (const row of results) this.jobs.set(row.job_id, row);
  }

  async #move() {
    this.counts.moved += 1;
    const { user_id } = this.rng.pick(this.users);
    await this.#spell(`moved ${user_id}`, () => this.gateway.account(user_id).evict());
  }

  async #edit() {
    this.counts.edits += 1;
    this.say(`${this.#clock()} a plan is edited`);
    const plan = this.rng.pick(this.users).plan;
    const field = plan.daily_limit === null ? "monthly_token_limit" : "daily_limit";
    const value = this.rng.between(Math.ceil(plan[field] / 2), plan[field]);
    await this.gateway.admin(`/admin/plans/${plan.plan_id}`, { method: "PATCH", json: { [field]: value } });
  }

  async #tick() {
    this.counts.ticks += 1;
    this.say(`${this.#clock()} the clock ticks`);
    await this.gateway.scheduled();
  }
}

