// Stands between the built Worker and its bindings, and lets a test make any of them fail.
// Every wrapper is a Proxy of the real binding, so it keeps the class name that the Worker checks.

import { asked } from "../message.mjs";
import { fakeAi } from "./ai.mjs";

/** `undefined`: those that the gateway was started with. */
let rules;
let calls = {};
let points = [];

/** Replaces all rules. A rule: {binding, mode, op?, match?, times?, skip?, ms?, message?, props?, garbage?}. */
export function setRules(next) {
  rules = next.map((rule) => ({ ...rule, left: rule.times ?? Infinity, toSkip: rule.skip ?? 0 }));
}

/** How often each operation was called since the last reset, as {"DB.all": 3}. */
export function takeCalls(reset) {
  const seen = calls;
  if (reset) calls = {};
  return seen;
}

/** The data points written since the last time this was asked. */
export function takePoints() {
  return points.splice(0);
}

/** The environment with its stores and queues behind the fault layer. */
export function faulty(env) {
  if (!rules) setRules(JSON.parse(env.HARNESS_FAULTS));
  const wrappers = { DB: database, CACHE: keyValue, ACCOUNTS: namespace, TASK_QUEUE: queue, NOTIFY_QUEUE: queue };
  const wrapped = { ...env };
  for (const [name, wrap] of Object.entries(wrappers)) if (env[name]) wrapped[name] = wrap(env[name], name);
  if (env.HARNESS_AI_URL) wrapped.AI = fakeAi(env.HARNESS_AI_URL);
  if (env.HARNESS_ANALYTICS) wrapped.ANALYTICS = new AnalyticsEngineDataset();
  if (env.HARNESS_EMAIL_URL) wrapped.EMAIL = new SendEmail(env.HARNESS_EMAIL_URL);
  return wrapped;
}

/** Analytics Engine as the Worker sees it; `{binding: "ANALYTICS", mode: "error"}` makes it refuse a point. */
class AnalyticsEngineDataset {
  writeDataPoint({ indexes, blobs, doubles }) {
    if (rules.some((rule) => rule.binding === "ANALYTICS" && rule.mode === "error")) throw failure(rules[0]);
    points.push({ indexes, blobs, doubles });
  }
}

/** The email binding as the Worker sees it; every email goes to the test as JSON. */
class SendEmail {
  constructor(url) {
    this.url = url;
  }

  async send({ from, to, subject, text }) {
    const answer = await fetch(this.url, { method: "POST", body: JSON.stringify({ from, to, subject, text }) });
    if (!answer.ok) throw Object.assign(new Error("the email was refused"), { code: "E_DELIVERY_FAILED" });
    return { messageId: "harness" };
  }
}

/**
 * Traps: the Worker's library takes it for impossible that reading these throws, so it panics, and the Wasm instance
 * is gone with all that it had in memory. Rules: {binding: "STATE" | "CONTEXT", op: "storage" | "id" | "waitUntil",
 * mode: "trap"}, {binding: "QUEUE", op: "body", mode: "trap"}, {binding: "DB", op: "prepare", match, mode: "trap"}.
 */
export function trapped(target, binding) {
  return new Proxy(target, {
    get(_, property) {
      trap(binding, property, "");
      const value = Reflect.get(target, property, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** A batch whose messages may be trapped. */
export function trappedBatch(batch) {
  const messages = batch.messages.map((message) => trapped(message, "QUEUE"));
  return { queue: batch.queue, messages, ackAll: () => batch.ackAll(), retryAll: (options) => batch.retryAll(options) };
}

function trap(binding, op, text) {
  const fits = (rule) => rule.binding === binding && rule.mode === "trap" && rule.op === op && rule.left > 0;
  const rule = rules.find((one) => fits(one) && text.includes(one.match ?? ""));
  if (!rule || rule.toSkip-- > 0) return;
  rule.left -= 1;
  throw new Error("trapped");
}

/** A Proxy in which only the named methods are replaced. */
function around(target, methods) {
  return new Proxy(target, {
    get(_, property) {
      if (Object.hasOwn(methods, property)) return methods[property];
      const value = Reflect.get(target, property, target);
      return typeof value === "function" && property !== "constructor" ? value.bind(target) : value;
    },
  });
}

const statements = new WeakMap();

function database(db, name) {
  return around(db, {
    prepare: (sql) => {
      trap(name, "prepare", sql);
      return statement(db.prepare(sql), sql, name);
    },
    batch: (list) => {
      const real = list.map((one) => statements.get(one) ?? { target: one, sql: "" });
      return through(name, "batch", real.map((one) => one.sql).join(";\n"), () => db.batch(real.map((one) => one.target)));
    },
    exec: (sql) => through(name, "exec", sql, () => db.exec(sql)),
    withSession: (...args) => database(db.withSession(...args), name),
  });
}

function statement(target, sql, name) {
  const run = (op) => (...args) => through(name, op, sql, () => target[op](...args));
  const proxy = around(target, {
    bind: (...values) => statement(target.bind(...values), sql, name),
    all: run("all"),
    run: run("run"),
    first: run("first"),
    raw: run("raw"),
  });
  statements.set(proxy, { target, sql });
  return proxy;
}

function keyValue(kv, name) {
  const ops = ["get", "getWithMetadata", "put", "delete", "list"];
  return around(kv, Object.fromEntries(ops.map((op) => [op, (...args) => through(name, op, String(args[0]), () => kv[op](...args))])));
}

function queue(target, name) {
  return around(target, {
    send: (...args) => through(name, "send", String(args[0]), () => target.send(...args)),
    sendBatch: (list, ...args) => {
      const messages = [...list];
      return through(name, "sendBatch", messages.map((one) => String(one.body)).join("\n"), () => target.sendBatch(messages, ...args));
    },
  });
}

function namespace(accounts, name) {
  return around(accounts, {
    get: (...args) => stub(accounts.get(...args), name),
    getByName: (user, options) => {
      const place = options?.locationHint && `${name} at ${options.locationHint}`;
      if (place) calls[place] = (calls[place] ?? 0) + 1;
      return stub(accounts.getByName(user, options), name, user);
    },
  });
}

function stub(target, name, user = target.name ?? "") {
  return around(target, {
    ask: (bytes) => through(name, "ask", `${user} "${asked(bytes)}"`, () => target.ask(bytes)),
    fetch: (input, init) => {
      const text = async () => `${user} ${input.url ?? input} ${input.clone ? await input.clone().text() : (init?.body ?? "")}`;
      return through(name, "fetch", text, () => target.fetch(input, init));
    },
  });
}

/** One call of a binding: counted, then as the first rule that fits says. */
async function through(binding, op, text, real) {
  const key = `${binding}.${op}`;
  calls[key] = (calls[key] ?? 0) + 1;
  const rule = rules.length > 0 ? await pick(binding, op, text) : null;
  switch (rule?.mode) {
    case "error":
      throw failure(rule);
    case "hang":
      await pause(rule.ms ?? 600_000);
      throw failure(rule);
    case "slow":
      await pause(rule.ms ?? 1000);
      return real();
    case "commit-then-error":
      await real();
      throw failure(rule);
    case "garbage":
      return garbage(binding, op, rule);
    default:
      return real();
  }
}

async function pick(binding, op, text) {
  for (const rule of rules) {
    if (rule.binding !== binding || rule.mode === "trap" || rule.left <= 0 || (rule.op && rule.op !== op)) continue;
    if (rule.match && !(typeof text === "function" ? await text() : text).includes(rule.match)) continue;
    if (rule.toSkip-- > 0) continue;
    rule.left -= 1;
    return rule;
  }
  return null;
}

/** `props` carries what the platform sets on its errors: {retryable: true}, {overloaded: true}, {remote: true}. */
function failure(rule) {
  return Object.assign(new Error(rule.message ?? "injected fault"), rule.props);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** An answer of the right kind with nonsense in it. */
function garbage(binding, op, rule) {
  const text = rule.garbage ?? "\u0000garbage{";
  if (binding === "ACCOUNTS") return op === "ask" ? new TextEncoder().encode(text) : new Response(text, { status: rule.status ?? 200 });
  if (binding === "CACHE") return op === "getWithMetadata" ? { value: text, metadata: null } : text;
  if (binding !== "DB") return undefined;
  const result = { success: true, results: [{ garbage: text }], meta: {} };
  return { all: result, run: result, batch: [result], first: { garbage: text }, raw: [[text]], exec: { count: 0, duration: 0 } }[op];
}
