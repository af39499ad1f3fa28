// What the harness runs in place of build/index.js: the built Worker with the fault layer around its bindings,
// and a control door (`POST /__harness`) through which a test sets faults and looks into an account.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import * as built from "../../../build/index.js";
import { answered } from "../message.mjs";
import { faulty, setRules, takeCalls, takePoints, trapped, trappedBatch } from "./faults.mjs";

export default class Harness extends WorkerEntrypoint {
  fetch(request) {
    return new URL(request.url).pathname === "/__harness" ? this.control(request) : this.#give("fetch", request);
  }

  queue(batch) {
    return this.#give("queue", trappedBatch(batch));
  }

  scheduled(event) {
    return this.#give("scheduled", event);
  }

  /** What the Worker sees in place of its bindings. */
  bindings() {
    return faulty(this.env);
  }

  #give(name, event) {
    return built.default[name](event, this.bindings(), trapped(this.ctx, "CONTEXT"));
  }

  async control(request) {
    const command = await request.json();
    if (command.rules) return Response.json(setRules(command.rules) ?? {});
    if (command.forget) return Response.json((globalThis.__worker_init_state.criticalError = true));
    if (command.points) return Response.json(takePoints());
    if (command.calls) return Response.json(takeCalls(command.calls === "reset"));
    const account = this.env.ACCOUNTS.getByName(command.account);
    return account.fetch("http://harness/", { method: "POST", body: JSON.stringify(command) });
  }
}

export class Account extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.built = new built.Account(trapped(ctx, "STATE"), faulty(env));
  }

  fetch(request) {
    return new URL(request.url).hostname === "harness" ? this.control(request) : this.built.fetch(request);
  }

  ask(message) {
    return this.built.ask(message);
  }

  alarm(info) {
    return this.built.alarm(info);
  }

  async control(request) {
    const { op, sql, values, message } = await request.json();
    switch (op) {
      case "sql":
        return Response.json([...this.ctx.storage.sql.exec(sql, ...(values ?? []))]);
      case "getAlarm":
        return Response.json(await this.ctx.storage.getAlarm());
      case "runAlarm":
        await this.ctx.storage.deleteAlarm();
        await this.built.alarm();
        return Response.json({});
      case "tell":
        return Response.json(answered(await this.built.ask(new Uint8Array(message))));
      case "wipe":
        await this.ctx.storage.deleteAll();
        return this.evict();
      default:
        return this.evict();
    }
  }

  /** Memory is lost and storage stays, as when the platform moves an object. */
  evict() {
    setTimeout(() => this.ctx.abort("evicted by a test"), 0);
    return Response.json({});
  }
}
