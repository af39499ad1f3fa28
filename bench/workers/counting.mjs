// Counts what a Worker asks of its bindings, in the units in which Cloudflare bills them. Every wrapper is a Proxy
// of the real binding, so it keeps the class name that workers-rs checks.

let counts = {};
/** When each user's account has published, in milliseconds. */
let published = new Map();

/** What was counted since the last reset. */
export function takeCounts() {
  const gaps = [...published.values()].flatMap((times) => times.slice(1).map((at, index) => at - times[index]));
  const taken = { ...counts, "shortest ms between publications": gaps.length > 0 ? Math.min(...gaps) : null };
  counts = {};
  published = new Map();
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

/** By the wrapper of a statement: the statement itself, its SQL and its values. */
const real = new WeakMap();

function database(db) {
  return around(db, {
    prepare: (sql) => statement(db.prepare(sql), sql, []),
    batch: async (list) => {
      notePublication(real.get(list[0]));
      const results = await db.batch(list.map((one) => real.get(one)?.target ?? one));
      transaction(results);
      return results;
    },
    withSession: (...args) => database(db.withSession(...args)),
  });
}

/** A publication is the one transaction that begins with the user's counters. */
function notePublication({ sql, values } = {}) {
  if (!sql?.startsWith("INSERT INTO user_quotas")) return;
  count("publications");
  const [user] = values;
  if (!published.has(user)) published.set(user, []);
  published.get(user).push(Date.now());
}

function statement(target, sql, values) {
  const rows = async () => {
    const result = await target.all();
    transaction([result]);
    return result;
  };
  const proxy = around(target, {
    bind: (...bound) => statement(target.bind(...bound), sql, bound),
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
  real.set(proxy, { target, sql, values });
  return proxy;
}

/** What D1 has run as one transaction. */
function transaction(results) {
  const sum = (what) => results.reduce((all, { meta }) => all + meta[what], 0);
  if (sum("rows_written") > 0) count("d1 writing transactions");
  count("d1 rows read", sum("rows_read"));
  count("d1 rows written", sum("rows_written"));
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
