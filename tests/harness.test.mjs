// The harness checks itself with a small Worker in JavaScript, and then that it runs the real one.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { eventually } from "./harness/eventually.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { checksum } from "../scripts/lib/keys.mjs";

const worker = `
const bindings = ["DB", "CACHE", "ACCOUNTS", "TASK_QUEUE", "NOTIFY_QUEUE"];
const ops = {
  names: (env) => bindings.map((name) => env[name].constructor.name),
  select: async (env) => (await env.DB.prepare("SELECT ? AS n").bind(1).all()).results,
  insert: (env) => env.DB.batch([env.DB.prepare("INSERT INTO audit (at, actor, action, target) VALUES ('', '', ?, '')").bind("x")]),
  get: (env) => env.CACHE.get("k"),
  put: (env) => env.CACHE.put("k", "v"),
  count: async (env) => (await env.ACCOUNTS.getByName("ann").fetch("http://account/count")).text(),
  inside: async (env) => (await env.ACCOUNTS.getByName("ann").fetch("http://account/inside")).text(),
  send: (env) => env.TASK_QUEUE.send("job"),
  poison: (env) => env.NOTIFY_QUEUE.send("poison"),
  offset: (env) => env.CLOCK_OFFSET_MS,
  upstream: async (env) => (await fetch(env.UPSTREAM_BASE_URL + "/models")).text(),
};
const note = (env, action) => env.DB.prepare("INSERT INTO audit (at, actor, action, target) VALUES ('', '', ?, '')").bind(action).run();
export default {
  async fetch(request, env) {
    console.log("asked for", request.url);
    try {
      return Response.json((await ops[new URL(request.url).pathname.slice(1)](env)) ?? null);
    } catch (error) {
      return Response.json({ error: error.message, retryable: error.retryable }, { status: 500 });
    }
  },
  async queue(batch, env) {
    if (batch.messages.some((message) => message.body === "poison") && !batch.queue.endsWith("-dead")) return batch.retryAll();
    await note(env, batch.queue);
  },
  scheduled: (event, env) => note(env, event.cron),
};
export class Account {
  calls = 0;
  constructor(state, env) {
    this.env = env;
    this.sql = state.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS t (n INTEGER)");
  }
  async fetch(request) {
    if (request.url.endsWith("inside")) return new Response(await ops.select(this.env).then(() => "well", (error) => error.message));
    this.sql.exec("INSERT INTO t VALUES (1)");
    return new Response(++this.calls + "/" + this.sql.exec("SELECT count(*) AS n FROM t").one().n);
  }
  alarm() {
    return note(this.env, "alarm");
  }
}`;

let gateway;
let upstream;
before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ worker, upstream });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const ask = async (op) => (await gateway.call(`/${op}`)).body;
const audit = async (action) => (await gateway.d1.prepare("SELECT count(*) AS n FROM audit WHERE action = ?").bind(action).first("n"));

describe("faults", () => {
  const operations = [
    ["DB", "select"],
    ["DB", "insert"],
    ["CACHE", "get"],
    ["CACHE", "put"],
    ["ACCOUNTS", "count"],
    ["TASK_QUEUE", "send"],
  ];
  for (const [binding, op] of operations) {
    test(`${binding} fails ${op} once, then works`, async () => {
      await gateway.faults([{ binding, mode: "error", message: "it is out", props: { retryable: true }, times: 1 }]);
      assert.deepEqual(await ask(op), { error: "it is out", retryable: true });
      assert.equal((await gateway.call(`/${op}`)).status, 200);
    });
  }

  test("the wrappers carry the names of the real classes", async () => {
    assert.deepEqual(await ask("names"), ["D1Database", "KvNamespace", "DurableObjectNamespace", "WorkerQueue", "WorkerQueue"]);
  });

  test("an account's own database fails too", async () => {
    await gateway.faults([{ binding: "DB", mode: "error", message: "it is out" }]);
    assert.equal(await ask("inside"), "it is out");
    await gateway.noFaults();
    assert.equal(await ask("inside"), "well");
  });

  test("an error after the work was done leaves the work", async () => {
    const before = await audit("x");
    await gateway.faults([{ binding: "DB", mode: "commit-then-error", match: "INSERT INTO audit", times: 1 }]);
    assert.equal((await gateway.call("/insert")).status, 500);
    assert.equal(await audit("x"), before + 1);
  });

  test("slow works late and hang fails late", async () => {
    const cases = [["slow", 200], ["hang", 500]];
    for (const [mode, status] of cases) {
      await gateway.faults([{ binding: "CACHE", mode, ms: 300, times: 1 }]);
      const began = Date.now();
      assert.equal((await gateway.call("/get")).status, status);
      assert.ok(Date.now() - began >= 295);
    }
  });

  test("garbage comes back in place of the answer", async () => {
    await gateway.faults([{ binding: "ACCOUNTS", mode: "garbage", garbage: "nonsense" }]);
    assert.equal(await ask("count"), "nonsense");
    await gateway.noFaults();
  });

  test("rules pick by operation, text and turn", async () => {
    await gateway.faults([
      { binding: "CACHE", mode: "error", op: "put" },
      { binding: "DB", mode: "error", match: "audit", skip: 1 },
    ]);
    const statuses = [];
    for (const op of ["get", "put", "select", "insert", "insert"]) statuses.push((await gateway.call(`/${op}`)).status);
    assert.deepEqual(statuses, [200, 500, 200, 200, 500]);
    await gateway.noFaults();
  });

  test("calls are counted", async () => {
    await gateway.resetCalls();
    await ask("select");
    await ask("count");
    assert.deepEqual(await gateway.calls(), { "DB.all": 1, "ACCOUNTS.fetch": 1 });
  });
});

describe("stores and time", () => {
  test("an evicted account keeps its storage only", async () => {
    await ask("count");
    const { n } = (await gateway.account("ann").sql("SELECT count(*) AS n FROM t"))[0];
    await gateway.account("ann").evict();
    await eventually(async () => assert.ok((await ask("count")).startsWith("1/")));
    assert.ok((await gateway.account("ann").sql("SELECT count(*) AS n FROM t"))[0].n > n);
  });

  test("queues deliver, and what nobody can handle ends in the dead-letter queue", async () => {
    await ask("send");
    await ask("poison");
    await eventually(async () => assert.ok((await audit("sluice-tasks")) > 0 && (await audit("sluice-notify-dead")) > 0));
  });

  test("cron and alarm run on demand", async () => {
    await gateway.scheduled("*/5 * * * *");
    await gateway.account("ann").runAlarm();
    assert.equal((await audit("*/5 * * * *")) + (await audit("alarm")), 2);
  });

  test("rows for users and keys are there", async () => {
    const user = await gateway.createUser({ plan_id: await gateway.createPlan({ plan_id: "t", daily_limit: 10 }) });
    const key = await gateway.createKey(user);
    assert.equal(checksum(key.slice(9, 39)), key.slice(39));
    const row = await gateway.d1.prepare("SELECT last4 FROM api_keys WHERE user_id = ?").bind(user).first();
    assert.equal(row.last4, key.slice(-4));
  });

  test("the Worker reaches the upstream, and its logs are kept", async () => {
    assert.match(await ask("upstream"), /m-small/);
    assert.equal(upstream.count("/v1/models"), 1);
    await eventually(() => assert.match(gateway.logs(), /asked for/));
  });

  test("a restart changes the settings and keeps the data", async () => {
    const before = await audit("x");
    await gateway.restart({ vars: { CLOCK_OFFSET_MS: "86400000" } });
    assert.equal(await ask("offset"), "86400000");
    assert.equal(await audit("x"), before);
  });

  test("after kill -9 the account still has what it had confirmed", async () => {
    const total = Number((await ask("count")).split("/")[1]);
    await gateway.kill9();
    await assert.rejects(gateway.fetch("/count"));
    await gateway.start();
    assert.equal(await ask("count"), `1/${total + 1}`);
  });
});

test("the checksum of a key is the published one", () => {
  assert.equal(checksum("7Hq2mZ0dLxW4tYb9RkCs1NvE8gJp3U"), "3YCseo");
});

test("the built Worker answers in the harness", async () => {
  const real = await startGateway();
  try {
    assert.equal((await real.call("/healthz")).status, 200);
    await real.forget();
    assert.equal((await real.call("/healthz")).status, 200);
  } finally {
    await real.stop();
  }
});
