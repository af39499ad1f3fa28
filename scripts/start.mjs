// `npm start`: from a clone to a gateway on this machine that answers, with two users to try it with.
import "./lib/node-version.mjs";
import { spawn } from "node:child_process";
import { connect } from "node:net";
import { buildAll, buildSteps } from "./build.mjs";
import { devVars } from "./lib/dev-vars.mjs";
import { isMain, root, toolEnv } from "./lib/paths.mjs";
import { endChildren } from "./lib/processes.mjs";
import { main, steps, Stop } from "./lib/say.mjs";
import { wrangler, wranglerCommand } from "./lib/wrangler.mjs";
import { seed } from "./seed.mjs";
import { setup, setupSteps } from "./setup.mjs";

const port = portFrom(process.env.PORT ?? "8787");
const address = `http://localhost:${port}`;
const patience = 120_000;

async function start() {
  await portIsFree();
  const step = steps(setupSteps + buildSteps + 4);
  await setup(step);
  await buildAll(step);
  const { vars } = await step("Secrets in .dev.vars", async (note) => {
    const made = devVars();
    note(made.missing.length > 0 ? `made ${made.missing.join(", ")}` : "already there");
    return made;
  });
  await step("Migrating the local database", () => wrangler(["d1", "migrations", "apply", "DB", "--local"]));
  const keys = await step("Demo users and keys", () => seed(vars.KEY_PEPPER));
  const server = await step("Starting the gateway", serve);
  console.log(welcome(keys, vars.ADMIN_TOKEN));
  server.passOn();
  await server.ended;
  throw new Stop("The gateway has ended by itself; what it said last is above.");
}

function portFrom(text) {
  const number = Number(text);
  if (Number.isInteger(number) && number > 0 && number < 65_536) return number;
  console.error(`\nsluice: PORT must be a port number and is "${text}".`);
  process.exit(1);
}

async function portIsFree() {
  const answers = await Promise.all(["127.0.0.1", "::1"].map(somebodyListens));
  if (answers.some(Boolean)) {
    throw new Stop(`Port ${port} is in use by another program; end it, or choose another port: PORT=${port < 65_535 ? port + 1 : port - 1} npm start.`);
  }
}

function somebodyListens(host) {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    socket.once("connect", () => resolve(socket.destroy() && true));
    socket.once("error", () => resolve(false));
    socket.setTimeout(1000, () => resolve(socket.destroy() && true));
  });
}

/** Starts `wrangler dev` and waits until the gateway answers; holds back what it prints until then. */
async function serve() {
  const [program, script] = wranglerCommand();
  const args = [script, "dev", "--port", String(port), "--show-interactive-dev-session=false"];
  const child = spawn(program, args, { cwd: root, env: toolEnv(), stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));

  let said = "";
  const keep = (bytes) => (said += bytes);
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  const state = await Promise.race([healthy(), ended.then(() => "ended")]);
  if (state !== "healthy") {
    process.stderr.write(said);
    await endChildren();
    throw new Stop(state === "ended" ? "`wrangler dev` ended before the gateway answered; its words are above." : `The gateway did not answer ${address}/healthz within ${patience / 1000} s.`);
  }
  const passOn = () => {
    child.stdout.removeListener("data", keep).pipe(process.stdout);
    child.stderr.removeListener("data", keep).pipe(process.stderr);
  };
  return { ended, passOn };
}

async function healthy() {
  const deadline = Date.now() + patience;
  while (Date.now() < deadline) {
    const answer = await fetch(`${address}/healthz`, { signal: AbortSignal.timeout(5000) }).catch(() => null);
    if (answer?.ok) return "healthy";
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  return "silent";
}

function welcome(keys, adminToken) {
  return `
Sluice answers on ${address}

  free user   ${keys["demo-free"]}
  pro user    ${keys["demo-pro"]}
  operator    ${adminToken}
  console     ${address}/console/

Try it:

  curl ${address}/api/ai/query \\
    -H 'Authorization: Bearer ${keys["demo-free"]}' -H 'Content-Type: application/json' \\
    -d '{"prompt":"Say hello"}'

Ctrl-C ends it.
`;
}

if (isMain(import.meta)) await main(start);
