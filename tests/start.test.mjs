// `npm start` in a clone that is set up: it serves, what it prints is true, and its end leaves nothing behind.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { workerIsBuilt } from "../scripts/build.mjs";
import { consoleIsBuilt } from "../scripts/console.mjs";
import { inRoot } from "../scripts/lib/paths.mjs";
import { signal } from "../scripts/lib/processes.mjs";
import { packagesUpToDate } from "../scripts/setup.mjs";
import { eventually } from "./harness/eventually.mjs";
import { run, startShell } from "./harness/shell.mjs";

/** On a busy machine; docs/setup.md has what it takes on an idle one. */
const UP = 60_000;
/** All that `npm start` reads of a clone, but its packages. */
const parts = [".cargo", "Cargo.lock", "Cargo.toml", "build", "console", "js", "migrations", "package-lock.json", "package.json", "public", "scripts", "src", "wrangler.toml"];
const isSetUp = packagesUpToDate() && workerIsBuilt() && consoleIsBuilt();

describe("npm start", { skip: isSetUp ? false : "this clone is not set up and built; `npm test` does that first" }, () => {
  const shell = startShell();
  let clone, env, address, gateway, keys;

  before(async () => {
    clone = copyOfClone();
    const port = await freePort();
    address = `http://localhost:${port}`;
    // Wrangler keeps its logs and a list of what is running beside its settings.
    env = { ...process.env, PORT: String(port), XDG_CONFIG_HOME: join(clone, "settings") };
  });
  after(() => {
    if (gateway) signal(-gateway.pid, "SIGKILL");
    rmSync(clone, { recursive: true, force: true });
    shell.stop();
  });

  const script = () => join(clone, "scripts", "start.mjs");

  /** Started in a process group of its own, as a shell does; `said` is what it has printed. */
  async function startGateway() {
    const child = spawn(process.execPath, [script()], { env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    gateway = { pid: child.pid, said: "", ended: new Promise((resolve) => child.once("exit", resolve)) };
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (gateway.said += bytes));
    await eventually(() => assert.match(gateway.said, /^Ctrl-C ends it\.$/m), UP);
  }

  async function hasEnded() {
    assert.equal(await gateway.ended, 130, gateway.said);
    await eventually(() => assert.deepEqual(runningOf(gateway.pid), []), 2_000);
    await assert.rejects(fetch(`${address}/healthz`));
  }

  test("is up within a minute, and all that it prints is true", async () => {
    await startGateway();
    const printed = (pattern) => pattern.exec(gateway.said)?.[1] ?? assert.fail(`no ${pattern} in ${gateway.said}`);
    assert.equal(printed(/^Sluice answers on (\S+)$/m), address);
    keys = { free: printed(/^ +free user +(slc_live_\w+)$/m), pro: printed(/^ +pro user +(slc_live_\w+)$/m) };

    const first = await shell.curl(printed(/^( +curl .+?)\n\n/ms), env);
    assert.equal(first.status, 200, first.text);
    assert.equal(first.body.object, "chat.completion");
    for (const [plan, used] of [["free", 1], ["pro", 0]]) {
      const { policies, ...quota } = await get("/api/quota", keys[plan]);
      assert.deepEqual([quota.plan.plan_id, policies.find(({ name }) => name === "daily").used], [plan, used]);
    }
    const { data } = await get("/admin/users", printed(/^ +operator +(\S+)$/m));
    assert.deepEqual(data.map(({ user_id }) => user_id).sort(), ["demo-free", "demo-pro"]);
    const page = await fetch(printed(/^ +console +(\S+)$/m));
    assert.equal(page.status, 200);
    assert.match(await page.text(), /<!doctype html>/i);
  });

  test("a port that is taken is one sentence, and nothing is touched", async () => {
    const { code, output } = await run(process.execPath, [script()], env);
    assert.equal(code, 1);
    assert.equal(output.trim(), `sluice: Port ${env.PORT} is in use by another program; end it, or choose another port: PORT=${Number(env.PORT) + 1} npm start.`);
    assert.equal((await fetch(`${address}/healthz`)).status, 200);
  });

  test("Ctrl-C ends it and leaves nothing running", async () => {
    assert.match(runningOf(gateway.pid).join("\n"), /workerd/);
    // A terminal tells the whole group.
    signal(-gateway.pid, "SIGINT");
    await hasEnded();
  });

  test("started again it knows its users and what they have used, and `kill` leaves nothing running either", async () => {
    await startGateway();
    for (const key of Object.values(keys)) assert.ok(gateway.said.includes(key));
    const { policies } = await get("/api/quota", keys.free);
    assert.equal(policies.find(({ name }) => name === "daily").used, 1);
    signal(gateway.pid, "SIGTERM");
    await hasEnded();
  });

  async function get(path, key) {
    const answer = await fetch(address + path, { headers: { authorization: `Bearer ${key}` } });
    assert.equal(answer.status, 200);
    return answer.json();
  }
});

/** A clone as set up as this one, so that the secrets and the database of this one stay as they are. */
function copyOfClone() {
  const clone = mkdtempSync(join(tmpdir(), "sluice-clone-"));
  for (const part of parts) cpSync(inRoot(part), join(clone, part), { recursive: true, filter: (path) => !path.endsWith("node_modules") });
  for (const folder of [".", "console"]) symlinkSync(inRoot(folder, "node_modules"), join(clone, folder, "node_modules"));
  return clone;
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** The command lines that still run in a process group. */
function runningOf(group) {
  const rows = spawnSync("ps", ["-A", "-o", "pgid=,stat=,args="], { encoding: "utf8" }).stdout.trim().split("\n");
  const processes = rows.map((row) => row.trim().split(/\s+/));
  return processes.filter(([pgid, state]) => Number(pgid) === group && !state.startsWith("Z")).map(([, , ...command]) => command.join(" "));
}
