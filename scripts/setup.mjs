// Brings a fresh clone to where it can build, start and test. Everything comes from package registries;
// what is there already is used, so that a second run takes no time.
import "./lib/node-version.mjs";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { inRoot, isMain, node22, toolEnv, toolsDir } from "./lib/paths.mjs";
import { ask, run } from "./lib/run.mjs";
import { main, steps, Stop } from "./lib/say.mjs";

const target = "wasm32-unknown-unknown";
const workerBuildVersion = "0.8.7";

/** How many steps `setup` announces. */
export const setupSteps = 5;

export async function setup(step) {
  await step("Rust compiler", rust);
  await step(`Rust target ${target}`, wasmTarget);
  await step("npm packages", npmPackages);
  await step(`worker-build ${workerBuildVersion}`, (note) => cargoTool(note, "worker-build", workerBuildVersion, "worker-build", ["--locked"]));
  const bindgen = lockedVersion("wasm-bindgen");
  await step(`wasm-bindgen ${bindgen}`, (note) => cargoTool(note, "wasm-bindgen", bindgen, "wasm-bindgen-cli", []));
}

async function rust(note) {
  const rustc = ask("rustc", ["--version"]);
  const cargo = ask("cargo", ["--version"]);
  if (!rustc || !cargo) throw new Stop("Rust (cargo and rustc) is needed and was not found; get it from https://rustup.rs/.");
  const oldest = /^rust-version = "(.+)"$/m.exec(readFileSync(inRoot("Cargo.toml"), "utf8"))?.[1];
  const found = rustc.split(" ")[1];
  if (oldest && older(found, oldest)) {
    throw new Stop(`Rust ${oldest} or newer is needed and this is ${found}; \`rustup update\` brings the newest.`);
  }
  note(rustc);
}

function older(found, wanted) {
  const [a, b] = [found, wanted].map((version) => version.split(".").map((part) => parseInt(part, 10) || 0));
  return a[0] !== b[0] ? a[0] < b[0] : a[1] < (b[1] ?? 0);
}

async function wasmTarget(note) {
  const present = () => existsSync(join(ask("rustc", ["--print", "sysroot"]) ?? "", "lib", "rustlib", target, "lib"));
  if (present()) return note("already there");
  if (!ask("rustup", ["--version"])) {
    throw new Stop(`The Rust target ${target} is needed; install it with your Rust distribution, or get rustup from https://rustup.rs/.`);
  }
  await run("rustup", ["target", "add", target]);
  if (!present()) throw new Stop(`\`rustup target add ${target}\` ran, yet the target is still missing.`);
}

async function npmPackages(note) {
  const upToDate = packagesUpToDate();
  if (!upToDate) await run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { show: false });
  await newerNode();
  note(`${upToDate ? "already there" : "installed"}, Node.js ${ask(node22(), ["--version"])} for wrangler and the tests`);
}

/** npm leaves a copy of the lock file it installed from in node_modules; they must name the same versions. */
export function packagesUpToDate() {
  const installed = inRoot("node_modules", ".package-lock.json");
  if (!existsSync(installed)) return false;
  const have = JSON.parse(readFileSync(installed, "utf8")).packages;
  const want = JSON.parse(readFileSync(inRoot("package-lock.json"), "utf8")).packages;
  return Object.entries(want).every(([path, wanted]) => path === "" || wanted.optional || have[path]?.version === wanted.version);
}

/** The npm package `node` brings its program by an install script, which npm may have been told not to run. */
async function newerNode() {
  const fits = () => Number((ask(node22(), ["--version"]) ?? "v0").slice(1).split(".")[0]) >= 22;
  if (fits()) return;
  const installer = inRoot("node_modules", "node", "installArchSpecificPackage.js");
  if (existsSync(installer)) await run(process.execPath, [installer], { show: false, allowFailure: true });
  if (!fits()) throw new Stop("Node.js 22 is needed for wrangler and could not be installed from npm; install it and start again.");
}

/** The tools run for seconds and compile for minutes: optimising them costs far more time than it saves. */
const unoptimised = { CARGO_PROFILE_RELEASE_OPT_LEVEL: "0" };

/** Uses the tool from PATH if it is exactly this version, else builds it once from crates.io. */
async function cargoTool(note, program, version, crate, flags) {
  const current = () => [program, toolPath(program)].find((path) => ask(path, ["--version"])?.split(" ").pop() === version);
  if (current()) return note("already there");
  console.log(`      compiling ${crate} ${version}, once for this machine: this takes a few minutes`);
  const args = ["install", crate, "--version", version, "--bin", program, "--root", toolsDir, "--force", "--quiet", ...flags];
  await run("cargo", args, { show: false, env: toolEnv(unoptimised) });
  if (!current()) throw new Stop(`${program} ${version} was installed into ${toolsDir} but does not run.`);
  note("installed");
}

function toolPath(program) {
  return join(toolsDir, "bin", program);
}

/** The programs of the build with their full paths; set-up has made sure they are there. */
export function buildTools() {
  const exact = (program, version) => (ask(program, ["--version"])?.split(" ").pop() === version ? program : toolPath(program));
  return {
    workerBuild: exact("worker-build", workerBuildVersion),
    wasmBindgen: exact("wasm-bindgen", lockedVersion("wasm-bindgen")),
    wasmOpt: inRoot("node_modules", ".bin", "wasm-opt"),
    esbuild: inRoot("node_modules", ".bin", "esbuild"),
  };
}

/** wasm-bindgen's program must have exactly the version of its library. */
function lockedVersion(crate) {
  const lock = readFileSync(inRoot("Cargo.lock"), "utf8");
  const version = new RegExp(`^name = "${crate}"\\nversion = "(.+)"$`, "m").exec(lock)?.[1];
  if (!version) throw new Stop(`Cargo.lock names no version of ${crate}.`);
  return version;
}

if (isMain(import.meta)) {
  await main(async () => {
    await setup(steps(setupSteps));
    console.log("\nReady. `npm start` serves the gateway, `npm test` checks it.");
  });
}
