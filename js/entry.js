// What the platform runs: the build, with its object as a class that can be asked by RPC. The runtime lets only those
// be asked that derive from DurableObject, and does not see it in the build's own, which stands behind a Proxy.
import { DurableObject } from "cloudflare:workers";
import { Account as Built, default as Worker } from "../build/index.js";

/** One for all events: for each of them the build would make another, and a Proxy around it and each of its methods. */
let worker;

const handler = (name) => {
  let method;
  return (event, env, ctx) => {
    worker ??= new Worker(ctx, env);
    method ??= worker[name];
    return method.call({ env, ctx }, event);
  };
};

const fetch = handler("fetch");
const again = handler("again");

export default {
  fetch: (request, env, ctx) => again(request, env, ctx) ?? fetch(request, env, ctx),
  queue: handler("queue"),
  scheduled: handler("scheduled"),
};

export class Account {
  constructor(ctx, env) {
    this.built = new Built(ctx, env);
  }

  ask(message) {
    return this.built.ask(message);
  }

  fetch(request) {
    return this.built.fetch(request);
  }

  alarm() {
    return this.built.alarm();
  }
}

// By hand: all that its constructor would do is to keep the context and the environment, which nobody wants here.
Object.setPrototypeOf(Account, DurableObject);
Object.setPrototypeOf(Account.prototype, DurableObject.prototype);
