// `npm run fuzz`: searches for bytes that break a property of `src/**/fuzzing.rs`, guided by coverage.
//
//   npm run fuzz                        every target, 30 s each
//   npm run fuzz -- sse jwt --seconds 600
//
// This runs on the stable compiler, whose passes can count branches for libFuzzer; on a nightly one
// `cargo fuzz run sse` does the same with a sanitizer. What is found lies in `fuzz/artifacts/{target}`.
import "./lib/node-version.mjs";
import { mkdirSync, readdirSync } from "node:fs";
import { inRoot, isMain, toolEnv } from "./lib/paths.mjs";
import { ask, run } from "./lib/run.mjs";
import { main, Stop } from "./lib/say.mjs";

const coverage = [
  "-Cpasses=sancov-module",
  "-Cllvm-args=-sanitizer-coverage-level=4",
  "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
  "-Cllvm-args=-sanitizer-coverage-pc-table",
  "-Cllvm-args=-sanitizer-coverage-trace-compares",
  "-Ccodegen-units=1",
].join(" ");

async function fuzz() {
  const { targets, seconds } = wanted(process.argv.slice(2));
  // With a target named, the flags are not those of build scripts and macros, which have no fuzzer to link to.
  const host = ask("rustc", ["--print", "host-tuple"]);
  const manifest = inRoot("fuzz", "Cargo.toml");
  await run("cargo", ["build", "--release", "--manifest-path", manifest, "--target", host], { env: toolEnv({ RUSTFLAGS: coverage }) });
  for (const target of targets) await search(inRoot("fuzz", "target", host, "release", target), target, seconds);
  console.log(`\n${targets.length} targets, ${seconds} s each: nothing found`);
}

async function search(program, target, seconds) {
  const [found, artifacts] = ["found", "artifacts"].map((name) => inRoot("fuzz", name, target));
  for (const folder of [found, artifacts]) mkdirSync(folder, { recursive: true });
  const limits = [`-max_total_time=${seconds}`, "-max_len=8192", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"];
  const { status, output } = await run(program, [...limits, `-artifact_prefix=${artifacts}/`, found, inRoot("fuzz", "corpus", target)], { show: false, allowFailure: true });
  if (status !== 0) throw new Stop(`${target} found something, see fuzz/artifacts/${target}:\n${output.slice(-4_000)}`);
  const number = (name) => /(\d+)$/.exec(output.match(new RegExp(`${name}: *\\d+`))?.[0] ?? "0")[1];
  const covered = [...output.matchAll(/cov: (\d+)/g)].at(-1)?.[1];
  console.log(`${target.padEnd(14)} ${number("stat::number_of_executed_units")} runs, ${covered} branches`);
}

function wanted(args) {
  const all = readdirSync(inRoot("fuzz", "fuzz_targets")).map((file) => file.replace(/\.rs$/, ""));
  const at = args.indexOf("--seconds");
  const seconds = at < 0 ? 30 : Number(args.splice(at, 2)[1]);
  const strange = args.find((name) => !all.includes(name));
  if (strange) throw new Stop(`There is no target ${strange}; there are ${all.join(", ")}.`);
  if (!(seconds > 0)) throw new Stop("`--seconds` needs a number.");
  return { targets: args.length > 0 ? args : all, seconds };
}

if (isMain(import.meta)) await main(fuzz);
