// `npm run deploy`: the Worker on your Cloudflare account, with all it needs. What is there already is left as it is,
// so a second run only brings the new code. `--dry-run` needs no account: it prints what would be done there.
import "./lib/node-version.mjs";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { buildAll, buildSteps } from "./build.mjs";
import { Account, DryRun } from "./lib/cloud.mjs";
import { newSecret } from "./lib/dev-vars.mjs";
import { inRoot, isMain } from "./lib/paths.mjs";
import { main, steps, Stop } from "./lib/say.mjs";
import { setup, setupSteps } from "./setup.mjs";

/** wrangler.toml with the ids of this account; it is there only while the script runs. */
const configFile = "wrangler.deploy.json";
const secrets = ["ADMIN_TOKEN", "KEY_PEPPER", "WEBHOOK_SECRET"];

async function deploy() {
  const cloud = cloudFor(process.argv.slice(2));
  const step = steps(setupSteps + buildSteps + 7);
  await setup(step);
  await buildAll(step);
  const config = await wranglerToml();
  await step("Cloudflare account", (note) => cloud.signedIn(note));
  await step("D1 database", (note) => database(cloud, config, note));
  await step("KV namespace", (note) => namespace(cloud, config, note));
  await step("Queues", (note) => queues(cloud, config, note));
  await step("Secrets", (note) => putSecrets(cloud, config.name, note));
  await withConfig(config, async () => {
    await step("Migrating the database", () => cloud.change(["d1", "migrations", "apply", "DB", "--remote", "--config", configFile]));
    await step("Deploying the Worker", () => cloud.deploy(["deploy", "--config", configFile]));
  });
}

function cloudFor(args) {
  const unknown = args.find((arg) => arg !== "--dry-run");
  if (unknown) throw new Stop(`\`${unknown}\` is not known; the only option is --dry-run.`);
  // `npm run deploy --dry-run`, without `--` between, keeps the option to itself and tells only by its environment.
  const dry = args.length > 0 || process.env.npm_config_dry_run === "true";
  return dry ? new DryRun() : new Account();
}

/** smol-toml is there only after set-up, so it is loaded late. */
async function wranglerToml() {
  const { parse } = await import("smol-toml");
  return parse(readFileSync(inRoot("wrangler.toml"), "utf8"));
}

async function database(cloud, config, note) {
  for (const one of config.d1_databases) {
    const find = () => cloud.list(["d1", "list", "--json"]).find(({ name }) => name === one.database_name)?.uuid;
    const create = () => cloud.change(["d1", "create", one.database_name]);
    one.database_id ??= await findOrCreate(cloud, find, create, note, one.database_name);
  }
}

/** Named as `wrangler deploy` would name it. */
async function namespace(cloud, config, note) {
  for (const one of config.kv_namespaces) {
    const name = `${config.name}-${one.binding.toLowerCase()}`;
    const find = () => cloud.list(["kv", "namespace", "list"]).find(({ title }) => title === name)?.id;
    const create = () => cloud.change(["kv", "namespace", "create", name]);
    one.id ??= await findOrCreate(cloud, find, create, note, name);
  }
}

async function findOrCreate(cloud, find, create, note, name) {
  const found = find();
  note(found ? `${name} is already there` : `${cloud.made} ${name}`);
  if (found) return found;
  await create();
  return find();
}

async function queues(cloud, config, note) {
  const { producers, consumers } = config.queues;
  const names = new Set([...producers, ...consumers].map(({ queue }) => queue));
  const missing = [...names].filter((name) => !cloud.exists(["queues", "info", name], "does not exist"));
  for (const name of missing) await cloud.change(["queues", "create", name]);
  note(missing.length > 0 ? `${cloud.made} ${missing.join(", ")}` : "already there");
}

/** Missing secrets are taken from the environment, else made; nobody but Cloudflare keeps them. */
async function putSecrets(cloud, worker, note) {
  const there = cloud.list(["secret", "list", "--name", worker, "--format", "json"], "[code: 10007]").map(({ name }) => name);
  const missing = secrets.filter((name) => !there.includes(name));
  if (missing.length === 0) return note("already there");
  const values = Object.fromEntries(missing.map((name) => [name, process.env[name] || newSecret(name)]));
  await cloud.change(["secret", "bulk", "--name", worker], JSON.stringify(values));
  if (values.ADMIN_TOKEN && !process.env.ADMIN_TOKEN) cloud.tell(`the operator's token, shown this once: ${values.ADMIN_TOKEN}`);
  note(`${cloud.made} ${missing.join(", ")}`);
}

async function withConfig(config, work) {
  writeFileSync(inRoot(configFile), JSON.stringify(config, null, 2));
  try {
    await work();
  } finally {
    rmSync(inRoot(configFile), { force: true });
  }
}

if (isMain(import.meta)) await main(deploy);
