// Two users to try the gateway with, one on the free and one on the pro plan, each with an API key.
// Run again it changes nothing: the keys are remembered beside the local database.
import "./lib/node-version.mjs";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { keyHash, newKey } from "./lib/keys.mjs";
import { inRoot } from "./lib/paths.mjs";
import { wrangler } from "./lib/wrangler.mjs";

/** The users a local gateway has from the start. */
export const demoUsers = [
  { user_id: "demo-free", plan_id: "free" },
  { user_id: "demo-pro", plan_id: "pro" },
];
const keysFile = inRoot(".wrangler", "demo-keys.json");
const sqlFile = inRoot(".wrangler", "seed.sql");

/** Writes the demo users into the local database; gives back their keys by user. */
export async function seed(pepper) {
  const keys = rememberedKeys();
  mkdirSync(inRoot(".wrangler"), { recursive: true });
  writeFileSync(keysFile, JSON.stringify(keys, null, 2), { mode: 0o600 });
  writeFileSync(sqlFile, demoUsers.map((user) => statements(user, keys[user.user_id], pepper)).join("\n"));
  await wrangler(["d1", "execute", "DB", "--local", "--yes", "--file", sqlFile]);
  return keys;
}

function rememberedKeys() {
  const known = existsSync(keysFile) ? JSON.parse(readFileSync(keysFile, "utf8")) : {};
  return Object.fromEntries(demoUsers.map(({ user_id }) => [user_id, known[user_id] ?? newKey()]));
}

function statements({ user_id, plan_id }, key, pepper) {
  const now = new Date().toISOString();
  return `INSERT INTO users (user_id, plan_id, created_at, updated_at)
  VALUES ('${user_id}', '${plan_id}', '${now}', '${now}') ON CONFLICT DO NOTHING;
INSERT INTO api_keys (key_id, key_hash, last4, user_id, name, created_at)
  VALUES ('key_${user_id}', '${keyHash(pepper, key)}', '${key.slice(-4)}', '${user_id}', 'demo', '${now}')
  ON CONFLICT (key_id) DO UPDATE SET key_hash = excluded.key_hash, last4 = excluded.last4;`;
}
