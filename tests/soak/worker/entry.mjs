// What the soak runs in place of the harness's entry: the same, and a witness that writes down which call asks its
// account for what, and what the account says. A line is written before the next thing happens, so that a kill can take
// along what was done, but not that it was seen.
import Harness, { Account as Held } from "../../harness/worker/entry.mjs";

/** The header by which a caller of the soak names a call. */
const named = "x-soak-mark";

export default class Witnessed extends Harness {
  fetch(request) {
    this.mark = request.headers.get(named);
    if (this.mark) witness(this.env, { came: this.mark });
    return super.fetch(request);
  }

  bindings() {
    return overheard(super.bindings(), (message) => witness(this.env, { front: message, mark: this.mark }));
  }
}

export class Account extends Held {
  async ask(message) {
    const id = crypto.randomUUID();
    witness(this.env, { id, asked: text(message) });
    const answer = await super.ask(message);
    witness(this.env, { id, answered: text(answer) });
    return answer;
  }
}

const text = (bytes) => btoa(String.fromCharCode(...bytes));

let life;

/** `witness` is real time, `now` the gateway's; `life` tells one run of the runtime from the next. */
function witness(env, line) {
  life ??= crypto.randomUUID().slice(0, 8);
  const at = Date.now();
  console.log(JSON.stringify({ witness: at, now: at + Number(env.CLOCK_OFFSET_MS ?? 0), life, ...line }));
}

/** The environment, with every message that sets out for an account told to `hear`. */
function overheard(env, hear) {
  const listening = (ask) => (message) => {
    hear(text(message));
    return ask(message);
  };
  const accounts = around(env.ACCOUNTS, (find) => (name) => around(find(name), listening, "ask"), "getByName");
  return { ...env, ACCOUNTS: accounts };
}

/** A Proxy in which one method is replaced; it keeps the class name that the Worker checks. */
function around(target, replace, name) {
  return new Proxy(target, {
    get(_, property) {
      const value = Reflect.get(target, property, target);
      if (typeof value !== "function" || property === "constructor") return value;
      return property === name ? replace(value.bind(target)) : value.bind(target);
    },
  });
}
