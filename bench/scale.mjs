// `npm run scale`: what 100,000 calls a second by 10 million users ask of the platform, as tables.
// bench/scale.rs follows the users; here it is put into dollars, databases and bytes. docs/scale.md reads them out.
import "../scripts/lib/node-version.mjs";
import { readFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { inRoot, isMain } from "../scripts/lib/paths.mjs";
import { run } from "../scripts/lib/run.mjs";
import { main } from "../scripts/lib/say.mjs";
import { number, table } from "./lib/report.mjs";
import { perMillion } from "./prices.mjs";

/** Seconds of a month, as bills count it. */
const month = 30 * 86_400;
/** A publication is two statements, and a database does one statement after the other: a millisecond each. */
export const publicationsPerDatabase = 500;
/** Assumed: milliseconds an object is at work for a message, and for a publication until D1 has answered. */
const busy = { message: 5, publication: 50 };

/** What is billed, by the names of the price list, from what bench/scale.rs counted. */
export function billed(asked) {
  const alarms = asked.publications;
  return {
    "worker requests": asked.calls,
    "object requests": asked.object_requests,
    "object milliseconds": (asked.object_requests - alarms) * busy.message + alarms * busy.publication,
    "object rows written": asked.object_rows,
    "d1 rows written": 2 * asked.publications,
    "d1 rows read": 2 * asked.publications + 3 * asked.starts + asked.kv_writes,
    "kv reads": asked.kv_reads,
    "kv writes": asked.kv_writes,
  };
}

/** Dollars a month for what is asked every second, by what is billed, dearest first. */
export function dollars(asked) {
  const parts = Object.entries(billed(asked)).map(([what, number]) => [what, ((perMillion({ "worker requests": 0, [what]: number }) * month) / 1e6)]);
  return parts.sort(([, one], [, other]) => other - one);
}

const share = (part) => `${number(part * 100)} %`;
const total = (parts) => parts.reduce((sum, [, dollars]) => sum + dollars, 0);

/** One user, by how often they call. */
export function usersTable(users) {
  const rows = users.map(({ rate, isolates, answer_ms, per_call: one }) => [
    `${rate}`,
    isolates,
    `${answer_ms / 1000} s`,
    share(one.leased),
    number(one.object_requests, 2),
    number(one.object_rows, 2),
    number(one.publications, 3),
    number(one.publications * rate, 3),
  ]);
  return table(["calls/s of one user", "isolates", "answer", "decided by a lease", "DO requests a call", "DO rows a call", "publications a call", "publications/s"], rows);
}

/** All users, by how they differ and how long accounts gather. */
export function crowdsTable(crowds) {
  const rows = crowds.map(({ crowd, delay_s, per_second: all }) => [
    crowd,
    `${delay_s} s`,
    share(all.leased / all.calls),
    number(all.object_requests),
    number(all.object_rows),
    number(all.publications),
    number(Math.ceil(all.publications / publicationsPerDatabase)),
    number(all.kv_reads),
    number(all.kv_writes + all.starts),
    number(total(dollars(all)) / (all.calls * month) * 1e6, 2),
  ]);
  return table(["users", "gather for", "by leases", "DO requests/s", "DO rows/s", "publications/s", "D1 databases", "KV reads/s", "central D1 reads/s", "$ a million calls"], rows);
}

/** What a month costs. */
export function costTable(crowds) {
  const parts = crowds.map(({ per_second }) => new Map(dollars(per_second)));
  const rows = [...parts[0].keys()].map((what) => [what, ...parts.map((one) => number(one.get(what)))]);
  const sums = ["all", ...parts.map((one) => number(total([...one])))];
  return table(["$ a month", ...crowds.map(({ crowd, delay_s }) => `${crowd}, ${delay_s} s`)], [...rows, sums]);
}

/** Bytes that one row takes in the ledger's tables, its indexes included. */
export function bytesTable(rows = 50_000) {
  const db = new DatabaseSync(":memory:");
  db.exec(readFileSync(inRoot("schema.sql"), "utf8"));
  const size = () => db.prepare("SELECT page_count * page_size AS bytes FROM pragma_page_count(), pragma_page_size()").get().bytes;
  const user = (index) => `user_${String(index).padStart(20, "0")}`;
  const at = "2026-01-01T00:00:00Z";
  const latency = JSON.stringify({ account: { 5: 30, 10: 15, 25: 5, sum: 400 }, upstream: { 500: 10, 1000: 20, 2500: 15, 5000: 5, sum: 90_000 } });
  const tables = {
    users: ["INSERT INTO users (user_id, email, created_at, updated_at) VALUES (?1, ?1 || '@example.com', ?2, ?2)", (id) => [id, at]],
    api_keys: ["INSERT INTO api_keys (key_id, key_hash, last4, user_id, created_at) VALUES ('key_' || ?1, hex(randomblob(32)), 'abcd', ?1, ?2)", (id) => [id, at]],
    user_quotas: ["INSERT INTO user_quotas (user_id, daily_limit, used_today, reset_at, tokens_used_this_month, month_reset_at, day_since_ms, month_since_ms, seq, updated_at) VALUES (?1, 1000, 50, ?2, 120000, ?2, 1781524800000, 1781524800000, 200, ?2)", (id) => [id, at]],
    daily_usage: ["INSERT INTO daily_usage (user_id, date, plan_id, calls, prompt_tokens, completion_tokens, latency) VALUES (?1, '2026-01-01', 'pro', 50, 5000, 10000, ?2)", (id) => [id, latency]],
  };
  const measured = Object.entries(tables).map(([name, [sql, values]]) => {
    const [before, statement] = [size(), db.prepare(sql)];
    db.exec("BEGIN");
    for (let index = 0; index < rows; index++) statement.run(...values(user(index)));
    db.exec("COMMIT");
    return [name, number((size() - before) / rows)];
  });
  return table(["table", "bytes a row"], measured);
}

async function scale() {
  const { output } = await run("cargo", ["run", "--quiet", "--locked", "--profile", "test", "--example", "scale"], { show: false });
  const { users, crowds } = JSON.parse(output);
  console.log(["## One user", usersTable(users), "## Everybody", crowdsTable(crowds), "## Bytes", bytesTable(), "## A month", costTable(crowds.filter(({ delay_s }) => delay_s === 1 || delay_s === 60))].join("\n\n"));
}

if (isMain(import.meta)) await main(scale);
