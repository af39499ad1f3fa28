// Counts what a Worker asks of its bindings, in the units in which Cloudflare bills them. Every wrapper is a Proxy
// of the real binding, so it keeps the class name that workers-rs checks.

let counts = {};

/** What was counted since the last reset. */
export function takeCounts() {
  const taken = counts;
  counts = {};
  return taken;
}

export function count(what, times = 1) {
  counts[what] = (counts[what] ?? 0) + times;
}

/** The environment with its stores counted. */
export function counted(env) {
  const wrappers = { DB: database, CACHE: keyValue, ACCOUNTS: namespace, TASK_QUEUE: queue, NOTIFY_QUEUE: queue };
  const wrapped = { ...env };
  for (const [name, wrap] of Object.entries(wrappers)) if (env[name]) wrapped[name] = wrap(env[name]);
  return wrapped;
}

/** A Worker of one `fetch` that also answers `POST /__counts` with its counts. */
export function counting(worker) {
  return {
    fetch: (request, env, context) =>
      new URL(request.url).pathname === "/__counts" ? Response.json(takeCounts()) : worker.fetch(request, counted(env), context),
  };
}

/** A Proxy in which only the named members are replaced. */
export function around(target, members) {
  return new Proxy(target, {
    get(_, property) {
      if (Object.hasOwn(members, property)) return members[property];
      const value = Reflect.get(target, property, target);
      return typeof value === "function" && property !== "constructor" ? value.bind(target) : value;
    },
  });
}

const real = new WeakMap();

function database(db) {
  return around(db, {
    prepare: (sql) => statement(db.prepare(sql)),
    batch: async (list) => {
      const results = await db.batch(list.map((one) => real.get(one) ?? one));
      results.forEach(billed);
      return results;
    },
    withSession: (...args) => database(db.withSession(...args)),
  });
}

function statement(target) {
  const rows = async () => billed(await target.all());
  const proxy = around(target, {
    bind: (...values) => statement(target.bind(...values)),
    all: rows,
    run: rows,
    first: async (column) => {
      const row = (await rows()).results[0] ?? null;
      return row && column !== undefined ? row[column] : row;
    },
    raw: async (...args) => {
      // The only way to the rows without their meta data; nothing that is measured goes it.
      throw new Error(`raw(${args}) is not counted`);
    },
  });
  real.set(proxy, target);
  return proxy;
}

/** One statement that D1 has run. */
function billed(result) {
  count("d1 queries");
  if (result.meta.rows_written > 0) count("d1 writing queries");
  count("d1 rows read", result.meta.rows_read);
  count("d1 rows written", result.meta.rows_written);
  return result;
}

function keyValue(kv) {
  const op = (name, what) => [name, (...args) => (count(what), kv[name](...args))];
  return around(kv, Object.fromEntries([op("get", "kv reads"), op("getWithMetadata", "kv reads"), op("put", "kv writes"), op("delete", "kv deletes"), op("list", "kv lists")]));
}

function queue(target) {
  // A message is written, read and deleted.
  return around(target, {
    send: (...args) => (count("queue operations", 3), target.send(...args)),
    sendBatch: (list, ...args) => {
      const messages = [...list];
      count("queue operations", 3 * messages.length);
      return target.sendBatch(messages, ...args);
    },
  });
}

function namespace(accounts) {
  const stub = (target) => around(target, { ask: (message) => (count("object requests"), target.ask(message)) });
  return around(accounts, {
    get: (...args) => stub(accounts.get(...args)),
    getByName: (...args) => stub(accounts.getByName(...args)),
  });
}
