// `npm run bench`: Sluice beside a bare passthrough and two plain limiters, on the same runtime, in one run.
// `npm run bench -- --quick` takes a minute or so; `npm run bench -- --profile admitted` says where the time of one
// row goes; docs/benchmarks.md says what is measured and why.
import "../scripts/lib/node-version.mjs";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, platform, release } from "node:os";
import { build } from "../scripts/build.mjs";
import { inRoot, isMain } from "../scripts/lib/paths.mjs";
import { ask } from "../scripts/lib/run.mjs";
import { main, steps, Stop } from "../scripts/lib/say.mjs";
import { goals } from "./lib/goals.mjs";
import { rounds, turn } from "./lib/measure.mjs";
import { operations } from "./lib/operations.mjs";
import { profile } from "./lib/profile.mjs";
import { report } from "./lib/report.mjs";
import { chunks, measuredRows, prepare, rowIds } from "./lib/scenarios.mjs";
import { buildTools, startUpstream } from "./lib/tools.mjs";
import { wasm } from "./lib/wasm.mjs";

const connections = 16;
/** Between the pieces of a stream: as a fast model writes. */
const pauseMicros = 3000;

// Stores in memory, where that can be: a disk that others use, too, would be measured more than the Workers.
if (existsSync("/dev/shm")) process.env.TMPDIR = "/dev/shm";

const quick = process.argv.includes("--quick");
const length = quick ? { number: 2, seconds: 0.8 } : { number: 5, seconds: 2.5 };

async function bench() {
  if (platform() !== "linux") throw new Stop("The bench reads /proc, which only Linux has.");
  if (process.argv.includes("--profile")) return profileOf(process.argv[process.argv.indexOf("--profile") + 1]);
  const step = steps(6);
  await step("The Worker", build);
  await step("Callers and provider", buildTools);
  const upstream = await startUpstream({ chunks, pauseMicros });
  try {
    const size = await step("Size and start of the Worker", wasm);
    const counted = await step("Counting operations", () => operations(upstream));
    const { scenarios, stop } = await step("Starting and warming up", () => warm(upstream));
    try {
      const ceiling = await turn({ ...scenarios[0], name: "no Worker", worker: { port: upstream.port, pids: [] } }, upstream, { seconds: length.seconds });
      const measured = await step(`${length.number} rounds of ${scenarios.length} scenarios`, (note) => rounds(scenarios, upstream, { ...length, tell: (done) => note(`${done} rounds`) }));
      const text = report({ setting: setting(), measured, scenarios, ceiling, counted, size, goals: goals({ measured, counted, size }) });
      writeFileSync(inRoot("bench/RESULTS.md"), text);
      console.log(`\n${text}`);
    } finally {
      await stop();
    }
  } finally {
    upstream.stop();
  }
}

async function profileOf(id) {
  if (!rowIds.includes(id)) throw new Stop(`--profile takes one of the rows ${rowIds.join(", ")}.`);
  const step = steps(3);
  await step("The Worker", build);
  await step("Callers and provider", buildTools);
  const upstream = await startUpstream({ chunks, pauseMicros });
  try {
    const { scenarios, stop } = await prepare([id], { upstream, inspector: true });
    try {
      console.log(`\n${await step("Profiling", () => profile(scenarios[0], upstream, length))}`);
    } finally {
      await stop();
    }
  } finally {
    upstream.stop();
  }
}

/** Everybody has called once before anything is measured, and what runs often was compiled. */
async function warm(upstream) {
  const prepared = await prepare(measuredRows, { upstream });
  for (const scenario of prepared.scenarios) await turn(scenario, upstream, { seconds: quick ? 0.5 : 2 });
  return prepared;
}

function setting() {
  const [{ model }, ...others] = cpus();
  const { version } = JSON.parse(readFileSync(inRoot("node_modules/workerd/package.json"), "utf8"));
  return {
    command: `npm run bench${quick ? " -- --quick" : ""}`,
    date: new Date().toISOString().slice(0, 10),
    machine: `${others.length + 1} × ${model.trim()}, Linux ${release()}`,
    runtime: `workerd ${version}`,
    commit: ask("git", ["rev-parse", "--short", "HEAD"]) ?? "unknown",
    rounds: length.number,
    seconds: length.seconds,
    connections,
  };
}

if (isMain(import.meta)) await main(bench);
