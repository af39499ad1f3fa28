// `npm run deploy` as far as it goes without an account, and that wrangler knows every command it would run.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { before, test } from "node:test";
import { run } from "./harness/shell.mjs";
import { inRoot, toolEnv } from "../scripts/lib/paths.mjs";
import { wranglerCommand } from "../scripts/lib/wrangler.mjs";

const env = toolEnv({ NO_COLOR: "1" });
let said, commands;

before(async () => {
  const { code, output } = await run(process.execPath, [inRoot("scripts/deploy.mjs"), "--dry-run"], env);
  assert.equal(code, 0, output);
  said = output;
  commands = [...output.matchAll(/would run: wrangler (.+)$/gm)].map(([, line]) => line.split(" "));
});

test("a dry run packs the Worker with all its bindings", () => {
  assert.match(said, /Total Upload: .+ gzip/);
  for (const binding of ["DB", "CACHE", "ACCOUNTS", "TASK_QUEUE", "NOTIFY_QUEUE", "ASSETS"]) assert.match(said, new RegExp(`^env\\.${binding}\\b`, "m"));
  assert.ok(!existsSync(inRoot("wrangler.deploy.json")));
});

test("a dry run names what would be made", () => {
  const lines = commands.map((words) => words.join(" "));
  const expected = ["d1 create sluice", "kv namespace create sluice-cache", "d1 migrations apply DB --remote --config wrangler.deploy.json"];
  for (const queue of ["sluice-tasks", "sluice-notify", "sluice-tasks-dead", "sluice-notify-dead"]) expected.push(`queues create ${queue}`);
  for (const line of expected) assert.ok(lines.includes(line), line);
  assert.match(said, /would make ADMIN_TOKEN, KEY_PEPPER, WEBHOOK_SECRET/);
  assert.doesNotMatch(said, /shown this once/);
});

test("wrangler has every command and every option", async () => {
  const used = new Map();
  for (const words of commands) {
    const name = words.slice(0, [...words, "--"].findIndex(endsName)).join(" ");
    used.set(name, new Set([...(used.get(name) ?? []), ...words.filter((word) => word.startsWith("--"))]));
  }
  assert.ok(used.size >= 9, [...used.keys()].join(", "));
  const [program, script] = wranglerCommand();
  const known = async ([name, flags]) => {
    const { code, output } = await run(program, [script, ...name.split(" "), "--help"], env);
    assert.equal(code, 0, output);
    assert.ok(output.includes(`wrangler ${name}`), `${name}: ${output}`);
    for (const flag of flags) assert.match(output, new RegExp(`${flag}\\b`), `${name} ${flag}`);
  };
  await Promise.all([...used].map(known));
});

/** The words of a command are followed by names of things and by options. */
const endsName = (word) => /^(--.*|DB|sluice.*)$/.test(word);

test("an unknown option stops it", async () => {
  const { code, output } = await run(process.execPath, [inRoot("scripts/deploy.mjs"), "--dryrun"], env);
  assert.equal(code, 1);
  assert.match(output, /--dryrun/);
});
