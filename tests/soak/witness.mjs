// What the witness in worker/entry.mjs has written down, read from the gateway's log: who came, what they asked their
// account for, and what the account said.

/** How long before a kill something must have been answered to have been stored for sure. */
const storing = 50;

export class Witness {
  /** By mark: {came: [line], operations: Set, statuses: by request id}. */
  calls = new Map();
  /** By id: {id, user, admits: [event], ends: [event], carried: [event]}. */
  operations = new Map();
  /** By id: {id, user, calls, tokens, lasts, granted: [event], returned: [event, with {ended, used}]}. */
  leases = new Map();
  /** Of every call, by its request id, the statuses that the gateway logged. */
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
    else if (told.ask) this.#asked(told);
    else if (told.answer) this.#answered(told);
  }

  /** "yes" if the account has done for sure what it was asked for, "maybe" if a kill or a move may have prevented it. */
  done(event, ends) {
    if (!event.answered) return "maybe";
    const born = this.#lives.get(event.life);
    const caught = ends.some((end) => born < end.from && event.answered.at >= end.from - storing);
    return caught ? "maybe" : "yes";
  }

  #log({ request_id, status }) {
    this.logged.set(request_id, [...(this.logged.get(request_id) ?? []), status]);
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
    // All else may be told for another call.
    if (mark && front.admit) this.#call(mark).operations.add(front.admit.operation);
  }

  #asked({ witness, now, life, account: user, id, ask }) {
    const event = { user, life, asked: { at: witness, now }, answered: null, answer: null };
    this.#events.set(id, event);
    if (ask.admit) {
      event.prompt = ask.admit.work.dispatch?.prompt;
      this.#operation(ask.admit.operation, user).admits.push(event);
    }
    const end = ask.settle ?? ask.conclude ?? ask.book_open;
    if (end) this.#operation(end.operation, user).ends.push(Object.assign(event, endOf(ask, end)));
    if (ask.take_back) this.#returned(event, ask.take_back.returned, user);
  }

  #returned(event, [lease, [, , ended = 0, prompt = 0, completion = 0], open], user) {
    event.lease = this.leases.get(lease);
    event.lease?.returned.push(Object.assign(event, { ended, used: [prompt, completion] }));
    for (const [id] of open) this.#operation(id, user).carried.push(event);
  }

  #answered({ witness, now, id, answer }) {
    const event = this.#events.get(id);
    if (!event) return;
    this.#events.delete(id);
    event.answered = { at: witness, now };
    event.answer = answer;
    event.admission = answer.decided?.verdict.admitted;
    const lease = answer.decided?.lease ?? answer.taken_back?.lease;
    if (lease) this.#granted(event, lease);
  }

  #granted(event, [id, [calls, tokens, lasts]]) {
    if (!this.leases.has(id)) this.leases.set(id, { id, user: event.user, calls, tokens: tokens ?? 0, lasts, granted: [], returned: [] });
    this.leases.get(id).granted.push(event);
  }
}

/** What an operation is said to have come to. */
function endOf(ask, end) {
  if (ask.book_open) return { booked: end.calls, used: [end.prompt, end.completion] };
  if (end.outcome === "released") return { used: null };
  return { used: [end.outcome.used.prompt, end.outcome.used.completion] };
}
