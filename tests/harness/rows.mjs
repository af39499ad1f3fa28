// Plans, users and keys written straight into D1: the one place in the tests that knows the column names.
import { keyHash, newKey } from "../../scripts/lib/keys.mjs";

const stamp = "2026-01-01T00:00:00Z";
let serial = 0;

/** The plan's fields that are columns of their own name and hold JSON text. */
const json = ["allowed_models", "rate", "endpoints", "reset", "over_quota", "notify_at"];

/** A plan as the operator's API would take it; what is absent is unlimited. Gives back its id. */
export async function createPlan(d1, plan) {
  const row = { name: plan.plan_id, updated_at: stamp, window: null, ...plan };
  for (const field of json) if (row[field] != null) row[field] = JSON.stringify(row[field]);
  if (row.window !== "default") row.window = JSON.stringify(row.window);
  if ("shadow" in row) row.shadow = row.shadow ? 1 : 0;
  await insert(d1, "plans", row);
  return plan.plan_id;
}

/** A user; gives back the id. */
export async function createUser(d1, user = {}) {
  const row = { user_id: `user-${++serial}`, plan_id: "free", created_at: stamp, updated_at: stamp, ...user };
  if (typeof row.overrides === "object") row.overrides = JSON.stringify(row.overrides);
  await insert(d1, "users", row);
  return row.user_id;
}

/** An API key of a user; gives back the key itself. `expires_at` and `revoked_at` are Dates, ms or RFC 3339. */
export async function createKey(d1, pepper, user_id, { expires_at, revoked_at, ...rest } = {}) {
  const key = newKey();
  await insert(d1, "api_keys", {
    key_id: `key-${++serial}-${key.slice(-6)}`,
    key_hash: keyHash(pepper, key),
    last4: key.slice(-4),
    user_id,
    created_at: stamp,
    expires_at_ms: millis(expires_at),
    revoked_at_ms: millis(revoked_at),
    ...rest,
  });
  return key;
}

/** What the ledger says a user has used of today and this month, or null. */
export function quotaRow(d1, user_id) {
  return d1.prepare("SELECT * FROM user_quotas WHERE user_id = ?").bind(user_id).first();
}

/** The days a user has called on, oldest first. */
export async function usageRows(d1, user_id) {
  return (await d1.prepare("SELECT * FROM daily_usage WHERE user_id = ? ORDER BY date").bind(user_id).all()).results;
}

const millis = (time) => (time == null ? null : new Date(time).getTime());

function insert(d1, table, row) {
  const names = Object.keys(row);
  const sql = `INSERT INTO ${table} (${names.join(", ")}) VALUES (${names.map(() => "?").join(", ")})`;
  return d1.prepare(sql).bind(...Object.values(row)).run();
}
