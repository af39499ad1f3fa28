// The built Worker with its bindings counted, and its objects' storage.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as built from "../../build/index.js";
import { around, count, counted, takeCounts } from "./counting.mjs";

export default class Counted extends WorkerEntrypoint {
  constructor(ctx, env) {
    super(ctx, env);
    this.built = new built.default(ctx, counted(env));
  }

  fetch(request) {
    return new URL(request.url).pathname === "/__counts" ? Response.json(takeCounts()) : this.built.fetch(request);
  }

  queue(batch) {
    return this.built.queue(batch);
  }

  scheduled(event) {
    return this.built.scheduled(event);
  }
}

export class Account extends DurableObject {
  #cursors = [];
  #busy = 0;
  #since = 0;

  constructor(ctx, env) {
    super(ctx, env);
    const storage = this.#storage(ctx.storage);
    const waitUntil = (work) => ctx.waitUntil(this.#timed(() => work));
    this.built = new built.Account(around(ctx, { storage, waitUntil }), counted(env));
  }

  ask(message) {
    return this.#timed(() => this.built.ask(message));
  }

  alarm(info) {
    count("object requests");
    count("object alarms");
    return this.#timed(() => this.built.alarm(info));
  }

  #storage(storage) {
    const exec = (...args) => {
      const cursor = storage.sql.exec(...args);
      this.#cursors.push(cursor);
      return cursor;
    };
    // An alarm is a row; so is each key that is put.
    const write = (name) => [name, (...args) => (count("object rows written"), storage[name](...args))];
    return around(storage, { sql: around(storage.sql, { exec }), ...Object.fromEntries(["setAlarm", "put", "delete"].map(write)) });
  }

  /** While something of an object is under way it is billed by time; what overlaps is billed once. */
  async #timed(work) {
    if (this.#busy++ === 0) this.#since = Date.now();
    try {
      return await work();
    } finally {
      this.#read();
      if (--this.#busy === 0) count("object milliseconds", Date.now() - this.#since);
    }
  }

  /** A cursor knows what it cost only once it was read. */
  #read() {
    for (const cursor of this.#cursors.splice(0)) {
      count("object rows read", cursor.rowsRead);
      count("object rows written", cursor.rowsWritten);
    }
  }
}
