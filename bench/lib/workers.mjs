// The Workers that are measured, each in a runtime process of its own, and reached past Miniflare's own entry Worker.
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { build } from "esbuild";
import { Miniflare, NoOpLog } from "miniflare";
import { family } from "../../scripts/lib/processes.mjs";
import { inRoot } from "../../scripts/lib/paths.mjs";
import { keyHash, newKey } from "../../scripts/lib/keys.mjs";
import { secrets, startGateway } from "../../tests/harness/gateway.mjs";
import { splitSql } from "../../tests/harness/sql.mjs";

const upstreamKey = "upstream-secret";
/** What no user of the limiters comes near. */
const plenty = 1_000_000_000;

/** Sluice as it is deployed, but without a line in the log for each call, which no other Worker writes either: as it is built, or with its bindings counted, or open to a profiler. */
export async function startSluice({ upstream, counted = false, inspector = false, vars }) {
  const entry = counted ? ["bench/workers/counted-sluice.mjs", "bench/workers/counting.mjs"] : [];
  const gateway = await startGateway({ upstream, direct: true, entry, inspector, vars: { ENVIRONMENT: "production", LOG_CALLS: "false", ...vars } });
  return {
    port: Number(new URL(gateway.directUrl).port),
    pids: gateway.pids.filter(isRuntime),
    d1: gateway.d1,
    pepper: secrets.KEY_PEPPER,
    gateway,
    isolate: "sluice",
    ...(inspector && { inspector: await gateway.mf.getInspectorURL() }),
    counts: () => countsOf(gateway.directUrl),
    stop: () => gateway.stop(),
  };
}

/** One of the plain Workers in bench/workers. */
export async function startPlain({ name, upstream, counted = false, inspector = false }) {
  const others = new Set(runtimes());
  const mf = new Miniflare({
    name,
    host: "127.0.0.1",
    port: 0,
    ...(inspector && { inspectorPort: 0 }),
    log: new NoOpLog(),
    cf: false,
    modules: [{ type: "ESModule", path: "worker.mjs", contents: await bundled(name, counted) }],
    modulesRoot: "/",
    compatibilityDate: "2026-07-01",
    bindings: { UPSTREAM_URL: upstream.url, UPSTREAM_API_KEY: upstreamKey },
    ...(name.startsWith("hono") && { d1Databases: { DB: "DB" }, kvNamespaces: { CACHE: "CACHE" } }),
    unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
  });
  await mf.ready;
  const url = (await mf.unsafeGetDirectURL()).origin;
  return {
    port: Number(new URL(url).port),
    pids: runtimes().filter((pid) => !others.has(pid)),
    mf,
    isolate: name,
    ...(inspector && { inspector: await mf.getInspectorURL() }),
    counts: () => countsOf(url),
    stop: () => mf.dispose(),
  };
}

const runtimes = () => family(process.pid).filter(isRuntime);

/** The process of a Worker, which is what is measured, and no other that this one has started. */
function isRuntime(pid) {
  const name = `/proc/${pid}/comm`;
  return existsSync(name) && readFileSync(name, "utf8").trim() === "workerd";
}

async function countsOf(url) {
  return (await fetch(`${url}/__counts`)).json();
}

async function bundled(name, counted) {
  const contents = counted
    ? `import worker from "./${name}.mjs"; import { counting } from "./counting.mjs"; export default counting(worker);`
    : `export { default } from "./${name}.mjs";`;
  const made = await build({ stdin: { contents, resolveDir: inRoot("bench/workers") }, bundle: true, minify: true, format: "esm", write: false });
  return made.outputFiles[0].text;
}

/** One user of a Hono limiter; gives back the key. */
export async function honoUser({ mf }) {
  const d1 = await mf.getD1Database("DB");
  for (const sql of splitSql(readFileSync(inRoot("bench/workers/schema.sql"), "utf8"))) await d1.prepare(sql).run();
  const [key, user] = [newKey(), { user_id: "u-1", daily_limit: plenty }];
  const hash = createHash("sha256").update(key).digest("hex");
  await d1.prepare("INSERT INTO users (user_id, key_hash, daily_limit) VALUES (?, ?, ?)").bind(user.user_id, hash, user.daily_limit).run();
  await (await mf.getKVNamespace("CACHE")).put(`key:${hash}`, JSON.stringify(user));
  return key;
}

/** Every limit a plan can have but the number of calls under way, none of which anybody comes near. */
const generous = {
  daily_limit: plenty,
  monthly_token_limit: plenty * 1000,
  max_tokens_per_request: 1000,
  rate: { capacity: 1_000_000, refill_per_minute: 1_000_000 },
  window: { max_requests: 1_000_000, minutes: 300 },
  tokens_per_minute: plenty,
};

/** Plans, users and keys of a bench: one user of each plan, a service, and a crowd. */
export async function sluiceUsers({ gateway, d1, pepper }, crowd) {
  await gateway.createPlan({ plan_id: "generous", ...generous });
  await gateway.createPlan({ plan_id: "spent", ...generous, daily_limit: 1 });
  const one = async (user_id, plan_id, key) => gateway.createKey(await gateway.createUser({ user_id, plan_id }), key);
  return {
    admitted: await one("u-admitted", "generous"),
    refused: await one("u-refused", "spent"),
    streamed: await one("u-streamed", "generous"),
    service: await one("u-service", "generous", { scope: "service" }),
    crowd: await many(d1, pepper, crowd),
  };
}

/** Users of the generous plan and a key of each, in few statements. */
async function many(d1, pepper, number) {
  const users = Array.from({ length: number }, (_, index) => ({ user_id: `crowd-${index}`, key: newKey() }));
  const stamp = "2026-01-01T00:00:00Z";
  const rows = users.map(({ user_id, key }) => ({ user_id, key_id: `k-${user_id}`, hash: keyHash(pepper, key), last4: key.slice(-4) }));
  const json = JSON.stringify(rows);
  await d1.batch([
    d1.prepare("INSERT INTO users (user_id, plan_id, created_at, updated_at) SELECT value->>'user_id', 'generous', ?2, ?2 FROM json_each(?1)").bind(json, stamp),
    d1.prepare("INSERT INTO api_keys (key_id, key_hash, last4, user_id, created_at) SELECT value->>'key_id', value->>'hash', value->>'last4', value->>'user_id', ?2 FROM json_each(?1)").bind(json, stamp),
  ]);
  return users;
}
