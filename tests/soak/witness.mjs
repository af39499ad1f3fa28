// What the witness in worker/entry.mjs has written down, read from the gateway's log: who came, what they asked their
// account for, and what the account said.

import { readAnswer, readMessage } from "./packed.mjs";

/** How long before a kill something must have been answered to have been stored for sure. */
const storing = 50;

export class Witness {
  /** By mark: {came: [line], operations: Set, statuses: by request id}. */
  calls = new Map();
  /** By id: {id, user, admits: [event], ends: [event], carried: [event]}. */
  operations = new Map();
  /** By id: {id, user, calls, tokens, lasts, granted: [event], returned: [event, with {ended, used}]}. */
  leases = new Map();
  /** Of every call, by its request id, what the gateway logged: [{status, decision, policy}]. */
  logged = new Map();
  #events = new Map();
  #lives = new Map();
  #read = 0;

  /** Reads on in a log that grows. */
  read(log) {
    const text = log.slice(this.#read);
    const whole = text.lastIndexOf("\n") + 1;
    this.#read += whole;
    for (const line of text.slice(0, whole).split("\n")) if (line.startsWith("{")) this.take(line);
  }

  take(line) {
    let told;
    try {
      told = JSON.parse(line);
    } catch {
      // A kill has cut it off.
      return;
    }
    if (told.event === "call") this.#log(told);
    if (!told.witness) return;
    if (!this.#lives.has(told.life)) this.#lives.set(told.life, told.witness);
    if (told.came) this.#call(told.came).came.push(told);
    else if (told.front) this.#front(told);
    else if (told.asked) this.#asked(told, readMessage(bytesOf(told.asked)));
    else if (told.answered) this.#answered(told, readAnswer(bytesOf(told.answered)));
  }

  /** "yes" if the account has done for sure what it was asked for, "maybe" if a kill or a move may have prevented it. */
  done(event, ends) {
    if (!event.answered) return "maybe";
    const born = this.#lives.get(event.life);
    const caught = ends.some((end) => born < end.from && event.answered.at >= end.from - storing);
    return caught ? "maybe" : "yes";
  }

  #log({ request_id, status, decision, policy }) {
    this.logged.set(request_id, [...(this.logged.get(request_id) ?? []), { status, decision, policy }]);
  }

  #call(mark) {
    if (!this.calls.has(mark)) this.calls.set(mark, { came: [], operations: new Set() });
    return this.calls.get(mark);
  }

  #operation(id, user) {
    if (!this.operations.has(id)) this.operations.set(id, { id, user, admits: [], ends: [], carried: [] });
    return this.operations.get(id);
  }

  #front({ front, mark }) {
    if (!mark) return;
    // All else may be told for another call.
    const { ask } = readMessage(bytesOf(front));
    if (ask.admit) this.#call(mark).operations.add(ask.admit.operation);
  }

  #asked({ witness, now, life, id }, { user, ask, ended }) {
    const event = () => ({ user, life, asked: { at: witness, now }, answered: null });
    const events = ended.map(({ operation, used }) => this.#ends(operation, Object.assign(event(), { used })));
    const asked = event();
    this.#events.set(id, [...events, asked]);
    if (ask.admit?.dispatched) this.#operation(ask.admit.operation, user).admits.push(asked);
    const end = ask.settle ?? ask.conclude ?? ask.book_open;
    if (end) this.#ends(end.operation, Object.assign(asked, { used: end.used, booked: end.booked, at: end.at }));
    if (ask.take_back) this.#returned(asked, ask.take_back);
  }

  #ends(operation, event) {
    this.#operation(operation, event.user).ends.push(event);
    return event;
  }

  #returned(event, { lease, row: [, , ended, prompt, completion], open }) {
    event.lease = this.leases.get(lease);
    event.lease?.returned.push(Object.assign(event, { ended, used: [prompt, completion] }));
    for (const id of open) this.#operation(id, event.user).carried.push(event);
  }

  #answered({ witness, now, id }, answer) {
    const events = this.#events.get(id) ?? [];
    this.#events.delete(id);
    if (answer.not_ready) return;
    for (const event of events) event.answered = { at: witness, now };
    const asked = events.at(-1);
    asked.admission = answer.decided?.admission;
    asked.refusedBy = answer.decided?.refusedBy;
    const lease = answer.decided?.lease ?? answer.taken_back?.lease;
    if (lease) this.#granted(asked, lease);
  }

  #granted(event, lease) {
    if (!this.leases.has(lease.id)) this.leases.set(lease.id, { ...lease, user: event.user, granted: [], returned: [] });
    this.leases.get(lease.id).granted.push(event);
  }
}

const bytesOf = (text) => new Uint8Array(Buffer.from(text, "base64"));
