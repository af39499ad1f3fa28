import { randomBytes } from "node:crypto";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { inRoot } from "./paths.mjs";

const file = inRoot(".dev.vars");

/** The secrets that no gateway can do without, and how each is made. */
const secrets = {
  ADMIN_TOKEN: () => randomBytes(24).toString("base64url"),
  KEY_PEPPER: () => randomBytes(32).toString("base64url"),
  WEBHOOK_SECRET: () => `whsec_${randomBytes(32).toString("base64")}`,
};
const needed = { ENVIRONMENT: () => "development", ...secrets };

/** A new random value for one of the secrets. */
export const newSecret = (name) => secrets[name]();

/** The settings of `.dev.vars`, after adding what it lacks. */
export function devVars() {
  const before = existsSync(file) ? readFileSync(file, "utf8") : "";
  const vars = parse(before);
  const missing = Object.keys(needed).filter((name) => !vars[name]);
  for (const name of missing) vars[name] = needed[name]();
  if (missing.length > 0) {
    const gap = before && !before.endsWith("\n") ? "\n" : "";
    appendFileSync(file, gap + missing.map((name) => `${name}=${vars[name]}\n`).join(""), { mode: 0o600 });
  }
  return { vars, missing };
}

function parse(text) {
  const lines = text.split("\n").map((line) => /^\s*([A-Za-z_]\w*)\s*=\s*(.*?)\s*$/.exec(line));
  return Object.fromEntries(lines.filter(Boolean).map(([, name, value]) => [name, value.replace(/^(["'])(.*)\1$/, "$2")]));
}
