// The built Worker in Miniflare, with real stores, for one test file.
//
//   const gateway = await startGateway({ upstream });
//   const key = await gateway.createKey(await gateway.createUser({ plan_id: "pro" }));
//   const answer = await gateway.call("/v1/models", { key });      // {status, headers, text, body}
//   await gateway.fault({ binding: "DB", mode: "error", match: "user_quotas", times: 1 });
//   await gateway.clock("2025-03-01T00:00:00Z");  // starts again at that time, same data
//   await gateway.stop();
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Miniflare, NoOpLog } from "miniflare";
import { parse } from "smol-toml";
import { family, signal } from "../../scripts/lib/processes.mjs";
import { inRoot, root } from "../../scripts/lib/paths.mjs";
import { documentOf } from "./document.mjs";
import { message } from "./message.mjs";
import { createKey, createPlan, createUser, quotaRow, usageRows } from "./rows.mjs";
import { splitSql } from "./sql.mjs";

/** The secrets a gateway has unless a test says otherwise. */
export const secrets = {
  ADMIN_TOKEN: "test-admin-token",
  KEY_PEPPER: "test-pepper",
  WEBHOOK_SECRET: `whsec_${Buffer.alloc(32, 7).toString("base64")}`,
};

/**
 * Starts the gateway.
 * `vars` and `secrets` override wrangler.toml (null takes one away); `upstream` (from `startUpstream`) becomes the
 * default provider; `ai` (another one) answers in place of Workers AI; `analytics: true` binds Analytics Engine;
 * `persist` is a directory to keep the stores in (default: a fresh one that `stop` removes);
 * `faults` are rules in force from the start; `assets: true` puts the console's router in front, as in production;
 * `direct: true` adds `directUrl`, a port past Miniflare's own entry, and `entry` names modules that take the place of
 * the harness's own (none: the build runs bare), both for measuring; `worker` is JavaScript to run in place of the
 * build, for tests of this harness itself; `outbound` answers all that the Worker fetches, in place of the network; `inspector: true` runs
 * the code that has its functions' names, and opens the runtime's inspector for a profile.
 */
export async function startGateway(options = {}) {
  const gateway = new Gateway(options);
  await gateway.start();
  return gateway;
}

class Gateway {
  #options;
  #port = 0;
  #ahead = 0;
  #rules;
  #logged = "";
  #processes = [];

  constructor(options) {
    this.#options = options;
    this.#rules = options.faults ?? [];
    this.directory = options.persist ?? mkdtempSync(join(tmpdir(), "sluice-gateway-"));
    this.pepper = { ...secrets, ...options.secrets }.KEY_PEPPER;
    this.adminToken = { ...secrets, ...options.secrets }.ADMIN_TOKEN;
  }

  async start() {
    const others = new Set(family(process.pid));
    this.mf = new Miniflare(this.#config());
    this.url = (await this.mf.ready).origin;
    this.#port = Number(new URL(this.url).port);
    this.#processes = family(process.pid).filter((pid) => !others.has(pid));
    if (this.#options.direct) this.directUrl = (await this.mf.unsafeGetDirectURL()).origin;
    this.d1 = await this.mf.getD1Database("DB");
    this.kv = await this.mf.getKVNamespace("CACHE");
    await migrate(this.d1);
  }

  /** The processes of the runtime. */
  get pids() {
    return this.#processes;
  }

  async stop() {
    await this.mf.dispose();
    if (!this.#options.persist) rmSync(this.directory, { recursive: true, force: true });
  }

  /** Ends every isolate and starts again with other settings; what is stored stays, queued messages do not. */
  async restart({ vars, secrets: changed, upstream, faults } = {}) {
    this.#options = {
      ...this.#options,
      upstream: upstream ?? this.#options.upstream,
      vars: { ...this.#options.vars, ...vars },
      secrets: { ...this.#options.secrets, ...changed },
    };
    if (faults) this.#rules = faults;
    // After `kill9` there is nothing left to dispose of.
    await this.mf.dispose().catch(() => {});
    await this.start();
  }

  /** Starts again with a clock that stands at `at` (ISO text or milliseconds) from now on and runs. */
  clock(at) {
    this.#ahead = new Date(at).getTime() - Date.now();
    return this.restart({ vars: { CLOCK_OFFSET_MS: String(this.#ahead) } });
  }

  /** Now, by the gateway's clock, in milliseconds. */
  now() {
    return Date.now() + this.#ahead;
  }

  /** The runtime is killed where it stands, as in a power cut. `start()` brings it back with what was durable. */
  async kill9() {
    for (const pid of this.#processes) signal(pid, "SIGKILL");
    await this.mf.dispose().catch(() => {});
  }

  /** `fetch` with the gateway's address in front. */
  fetch(path, init) {
    return fetch(this.url + path, init);
  }

  /** One call, read to its end: {status, headers, text, body}; `body` is the parsed JSON, or undefined. */
  async call(path, { key, json, headers, method, body, ...init } = {}) {
    const asked = method ?? (json !== undefined || body !== undefined ? "POST" : "GET");
    const answer = await this.fetch(path, {
      method: asked,
      headers: { ...(key && { authorization: `Bearer ${key}` }), ...(json !== undefined && { "content-type": "application/json" }), ...headers },
      body: json !== undefined ? JSON.stringify(json) : body,
      ...init,
    });
    const text = await answer.text();
    const read = { status: answer.status, headers: answer.headers, text, body: parsed(text) };
    this.document?.check(asked, path, read);
    return read;
  }

  /** From now on every answer that `call` reads has to be one that openapi.json tells of. */
  async keepToDocument() {
    this.document = await documentOf(this);
  }

  /** A call of the operator. */
  admin(path, init = {}) {
    return this.call(path, { key: this.adminToken, ...init });
  }

  createPlan(plan) {
    return createPlan(this.d1, plan);
  }

  createUser(user) {
    return createUser(this.d1, user);
  }

  createKey(user_id, key) {
    return createKey(this.d1, this.pepper, user_id, key);
  }

  quotaRow(user_id) {
    return quotaRow(this.d1, user_id);
  }

  usageRows(user_id) {
    return usageRows(this.d1, user_id);
  }

  /** Replaces all fault rules (see worker/faults.mjs); they also outlive a restart. */
  async faults(rules) {
    this.#rules = rules;
    await this.#control({ rules });
  }

  /** Adds one rule: {binding, mode: "error" | "hang" | "slow" | "commit-then-error" | "garbage" | "trap", …}. */
  fault(rule) {
    return this.faults([...this.#rules, rule]);
  }

  noFaults() {
    return this.faults([]);
  }

  /** How often each binding was called since the last `resetCalls`: {"DB.all": 2, "ACCOUNTS.ask": 1}. */
  calls() {
    return this.#control({ calls: "show" });
  }

  /** The data points of Analytics Engine since the last time, where the gateway was started with `analytics`. */
  points() {
    return this.#control({ points: "take" });
  }

  resetCalls() {
    return this.#control({ calls: "reset" });
  }

  /** The Worker starts anew in the same process, by its own way out of a panic: all it had in memory is gone. */
  forget() {
    return this.#control({ forget: true });
  }

  /** Into one account object: its storage by SQL, its alarm, what the platform may do to it, and what others tell it. */
  account(user_id) {
    const control = (op, rest) => this.#control({ account: user_id, op, ...rest });
    return {
      sql: (sql, ...values) => control("sql", { sql, values }),
      getAlarm: () => control("getAlarm"),
      runAlarm: () => control("runAlarm"),
      evict: () => control("evict"),
      wipe: () => control("wipe"),
      tell: (ask) => control("tell", { message: [...message(user_id, ask)] }),
    };
  }

  /** Lets the cron handler run to its end. */
  async scheduled(cron = "*/5 * * * *", scheduledTime = new Date()) {
    return (await this.mf.getWorker()).scheduled({ cron, scheduledTime });
  }

  /** All that the Worker and the runtime have logged. */
  logs() {
    return this.#logged;
  }

  async #control(command) {
    const answer = await this.fetch("/__harness", { method: "POST", body: JSON.stringify(command) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`harness: ${answer.status} ${text}`);
    return parsed(text);
  }

  #config() {
    const stores = Object.fromEntries(["d1", "kv", "durableObjects"].map((kind) => [`${kind}Persist`, join(this.directory, kind)]));
    return {
      host: "127.0.0.1",
      port: this.#port,
      log: new NoOpLog(),
      cf: false,
      handleRuntimeStdio: (out, err) => {
        for (const stream of [out, err]) this.#hear(stream);
      },
      ...stores,
      ...workerConfig(this.#options, this.#rules),
    };
  }

  /** Line by line, so that what comes by two ways at once does not run together. */
  #hear(stream) {
    let rest = "";
    stream.setEncoding("utf8");
    stream.on("data", (text) => {
      rest += text;
      const whole = rest.lastIndexOf("\n") + 1;
      this.#logged += rest.slice(0, whole);
      rest = rest.slice(whole);
      if (process.env.SLUICE_TEST_LOGS) process.stderr.write(text);
    });
  }
}

/** wrangler.toml in Miniflare's words, with the settings of the test. */
function workerConfig({ vars, secrets: changed, upstream, ai, analytics, assets, direct, entry, outbound, worker, inspector }, rules) {
  const file = parse(readFileSync(inRoot("wrangler.toml"), "utf8"));
  const provider = upstream && { UPSTREAM_BASE_URL: `${upstream.url}/v1`, UPSTREAM_API_KEY: "upstream-secret" };
  const bindings = { ...file.vars, ENVIRONMENT: "test", ...secrets, ...provider, HARNESS_FAULTS: JSON.stringify(rules), ...(ai && { HARNESS_AI_URL: ai.url }), ...(analytics && { HARNESS_ANALYTICS: "yes" }), ...vars, ...changed };
  for (const [name, value] of Object.entries(bindings)) if (value == null) delete bindings[name];
  return {
    name: file.name,
    modulesRoot: root,
    modules: modules(worker, entry, inspector ? "build/named.wasm" : "build/index_bg.wasm"),
    compatibilityDate: file.compatibility_date,
    compatibilityFlags: file.compatibility_flags,
    bindings,
    d1Databases: pairs(file.d1_databases, (one) => [one.binding, one.binding]),
    kvNamespaces: pairs(file.kv_namespaces, (one) => [one.binding, one.binding]),
    durableObjects: pairs(file.durable_objects.bindings, (one) => [one.name, { className: one.class_name, useSQLite: true }]),
    queueProducers: pairs(file.queues.producers, (one) => [one.binding, { queueName: one.queue }]),
    queueConsumers: pairs(file.queues.consumers, (one) => [one.queue, consumer(one)]),
    ...(assets && { assets: consoleAssets(file.assets) }),
    ...(outbound && { outboundService: outbound }),
    ...(inspector && { inspectorPort: 0 }),
    ...(direct && { unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }] }),
  };
}

const pairs = (list, pair) => Object.fromEntries(list.map(pair));

/** As in production, but a batch does not wait for more messages. */
function consumer({ max_batch_size, max_retries, dead_letter_queue, retry_delay }) {
  return { maxBatchSize: max_batch_size, maxBatchTimeout: 0, maxRetries: max_retries, deadLetterQueue: dead_letter_queue, retryDelay: retry_delay };
}

function consoleAssets({ directory, binding, run_worker_first }) {
  const asset_worker = run_worker_first.filter((rule) => rule.startsWith("!")).map((rule) => rule.slice(1));
  const user_worker = run_worker_first.filter((rule) => !rule.startsWith("!"));
  return { directory: inRoot(directory), binding, routerConfig: { has_user_worker: true, static_routing: { user_worker, asset_worker } } };
}

const ownEntry = [...["entry.mjs", "faults.mjs", "ai.mjs"].map((name) => `tests/harness/worker/${name}`), "tests/harness/message.mjs"];

function modules(worker, entry = ownEntry, code) {
  const harness = entry.map((path) => ({ type: "ESModule", path: inRoot(path) }));
  const main = { type: "ESModule", path: inRoot("build/index.js") };
  if (worker) return [...harness, { ...main, contents: worker }];
  if (!existsSync(inRoot(code))) throw new Error("There is no build yet; `npm run build` makes it.");
  return [...harness, main, { type: "CompiledWasm", path: inRoot("build/index_bg.wasm"), contents: readFileSync(inRoot(code)) }];
}

/** Applies the migrations that a database lacks, each as one transaction, in the order of their names. */
async function migrate(d1) {
  await d1.prepare("CREATE TABLE IF NOT EXISTS d1_migrations (id INTEGER PRIMARY KEY, name TEXT UNIQUE)").run();
  const done = new Set((await d1.prepare("SELECT name FROM d1_migrations").all()).results.map((row) => row.name));
  const names = readdirSync(inRoot("migrations")).filter((name) => name.endsWith(".sql") && !done.has(name)).sort();
  for (const name of names) {
    const statements = splitSql(readFileSync(inRoot("migrations", name), "utf8")).map((sql) => d1.prepare(sql));
    await d1.batch([...statements, d1.prepare("INSERT INTO d1_migrations (name) VALUES (?)").bind(name)]);
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
