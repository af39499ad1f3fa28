// `npm test`: everything that is checked before a change lands, and one line with the sum at the end.
import "./lib/node-version.mjs";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "./build.mjs";
import { buildConsole } from "./console.mjs";
import { installChromium } from "./lib/chromium.mjs";
import { inRoot, isMain, node22, toolEnv } from "./lib/paths.mjs";
import { ask, run } from "./lib/run.mjs";
import { main, steps, Stop } from "./lib/say.mjs";
import { setup, setupSteps } from "./setup.mjs";
import { size } from "./size.mjs";

const python = inRoot(".venv", "bin", "python");
const requirements = inRoot("tests", "requirements.txt");
// Also holds for a whole file; those that drive a browser take a while on a busy machine.
const perTest = 300_000;

const checks = [
  ["Formatting", () => run("cargo", ["fmt", "--check"])],
  ["Lints, this machine", () => run("cargo", ["clippy", "--all-targets", "--locked", "--", "-D", "warnings"])],
  ["Lints, Worker", () => run("cargo", ["clippy", "--target", "wasm32-unknown-unknown", "--locked", "--", "-D", "warnings"])],
  ["Rust tests", rustTests],
  ["Building the Worker", build],
  ["Size of the Worker", size],
  ["Building the console", buildConsole],
  ["Types of the console", () => consoleCheck("typecheck")],
  ["Size of the console", () => consoleCheck("size")],
  ["Tests of the console", consoleTests],
  ["Chromium for the console", installChromium],
  ["Python for some tests", pythonPackages],
  ["Tests of the built Worker", nodeTests],
];

const total = { passed: 0, failed: 0 };

async function test() {
  const step = steps(setupSteps + checks.length);
  await setup(step);
  for (const [title, check] of checks) await step(title, (note) => attempt(title, check, note));
  console.log(`\n${total.passed} passed, ${total.failed} failed`);
  if (total.failed > 0) process.exit(1);
}

/** A check that fails counts as one failure and lets the next ones run: one run shows all there is to mend. */
async function attempt(title, check, note) {
  try {
    await check(note);
  } catch (error) {
    total.failed += 1;
    note(`FAILED: ${title}: ${error instanceof Stop ? error.message : error.stack}`);
  }
}

async function rustTests(note) {
  const { status, output } = await run("cargo", ["test", "--locked"], { allowFailure: true });
  const results = [...output.matchAll(/^test result: .*?(\d+) passed; (\d+) failed/gm)];
  count(note, status, sum(results, 1), sum(results, 2));
}

const consoleNpm = (args, options) => run("npm", ["--prefix", inRoot("console"), ...args], options);

/** One of the console's own scripts, which says all it has to say by its status. */
async function consoleCheck(script) {
  await consoleNpm(["run", script]);
  total.passed += 1;
}

async function consoleTests(note) {
  const scratch = mkdtempSync(join(tmpdir(), "sluice-console-"));
  const report = join(scratch, "report.json");
  try {
    const args = ["test", "--", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
    const { status } = await consoleNpm(args, { allowFailure: true });
    const { numPassedTests = 0, numFailedTests = 0 } = existsSync(report) ? JSON.parse(readFileSync(report, "utf8")) : {};
    count(note, status, numPassedTests, numFailedTests);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

async function nodeTests(note) {
  const files = readdirSync(inRoot("tests")).filter((name) => name.endsWith(".test.mjs")).map((name) => `tests/${name}`);
  const scratch = mkdtempSync(join(tmpdir(), "sluice-tests-"));
  const tap = join(scratch, "result.tap");
  const args = ["--test", "--test-concurrency=2", `--test-timeout=${perTest}`, "--test-force-exit", "--no-warnings"];
  args.push("--test-reporter=spec", "--test-reporter-destination=stdout", "--test-reporter=tap", `--test-reporter-destination=${tap}`);
  try {
    const { status } = await run(node22(), [...args, ...files], { allowFailure: true, env: toolEnv({ SLUICE_PYTHON: python }) });
    const report = existsSync(tap) ? readFileSync(tap, "utf8") : "";
    const number = (name) => sum([...report.matchAll(new RegExp(`^# ${name} (\\d+)$`, "gm"))], 1);
    count(note, status, number("pass"), number("fail") + number("cancelled"));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** A run that says it failed without a failing test (it did not compile, it ran nothing) is a failure all the same. */
function count(note, status, passed, failed) {
  total.passed += passed;
  total.failed += failed;
  if (failed === 0 && (status !== 0 || passed === 0)) throw new Stop(`${passed} tests ran and the run ended with status ${status}.`);
  note(`${passed} passed, ${failed} failed`);
}

const sum = (matches, group) => matches.reduce((all, match) => all + Number(match[group]), 0);

/** The official SDKs for Python and the fuzzer, at the versions the tests are written for. */
async function pythonPackages(note) {
  if (!existsSync(requirements)) return note("not needed");
  const installed = inRoot(".venv", ".installed");
  const wanted = readFileSync(requirements, "utf8");
  if (existsSync(python) && existsSync(installed) && readFileSync(installed, "utf8") === wanted) return note("already there");
  if (!ask("python3", ["--version"])) throw new Stop("Python 3 is needed for some tests and was not found; get it from https://www.python.org/.");
  rmSync(inRoot(".venv"), { recursive: true, force: true });
  const made = await run("python3", ["-m", "venv", inRoot(".venv")], { show: false, allowFailure: true });
  if (made.status !== 0) throw new Stop("`python3 -m venv` failed; on Debian the package python3-venv brings what it needs.");
  await run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements], { show: false });
  writeFileSync(installed, wanted);
  note("installed");
}

if (isMain(import.meta)) await main(test);
