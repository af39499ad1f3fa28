// Compiles the Worker into build/. Called by `npm run build` and, through wrangler.toml, by wrangler itself.
import "./lib/node-version.mjs";
import { copyFileSync, writeFileSync } from "node:fs";
import { buildConsole } from "./console.mjs";
import { fingerprint, upToDate } from "./lib/fingerprint.mjs";
import { inRoot, isMain, toolEnv } from "./lib/paths.mjs";
import { run } from "./lib/run.mjs";
import { main, steps } from "./lib/say.mjs";
import { buildTools, setup, setupSteps } from "./setup.mjs";

const inputs = ["src", "js", "Cargo.toml", "Cargo.lock", ".cargo/config.toml", "rust-toolchain.toml", "scripts/build.mjs", "scripts/setup.mjs"];
/** The same code with its functions' names, for `npm run bench -- --profile`; it is not part of the Worker. */
const named = "build/named.wasm";
const outputs = ["build/index.js", "build/index_bg.wasm", named];
const stamp = "build/.stamp";

/** What rustc emits for wasm32-unknown-unknown, named one by one: anything newer might not load in workerd. */
const features = ["mutable-globals", "sign-ext", "nontrapping-float-to-int", "bulk-memory", "multivalue", "reference-types", "exception-handling"];
const enabled = features.map((feature) => `--enable-${feature}`);
/**
 * Once more finds more, and generic code leaves functions that differ in a constant. Rust keeps the first kilobyte of
 * memory for the deepest end of the stack, so no pointer to a field starts there.
 */
const optimise = ["-Oz", "--merge-similar-functions", "-Oz", "--low-memory-unused", "-g", ...enabled];
/** Functions that are alike have names that are, and side by side they are packed better. */
const strip = ["--reorder-functions-by-name", "--strip-debug", "--strip-producers", ...enabled];

/**
 * js/entry.js takes the place of what worker-build has made, which it imports. That names a module once for every block
 * of Rust that imports it, which is no reason to warn.
 */
const quiet = "--log-override:duplicate-object-key=silent";
const bundled = [quiet, "--bundle", "--minify", "--format=esm", "--external:cloudflare:workers", "--external:*.wasm", "--allow-overwrite", "--outfile=build/index.js"];

/** How many steps `buildAll` announces. */
export const buildSteps = 2;

export async function buildAll(step) {
  await step("Building the Worker", build);
  await step("Building the console", buildConsole);
}

/** Whether the Worker in build/ was made from what is here now. */
export const workerIsBuilt = (wanted = fingerprint(inputs)) => upToDate(stamp, wanted, outputs);

export async function build(note) {
  const wanted = fingerprint(inputs);
  if (workerIsBuilt(wanted)) return note("unchanged since the last build");
  const tools = buildTools();
  console.log("      compiling the Worker: the first time takes a minute or two");
  const env = toolEnv({ WASM_BINDGEN_BIN: tools.wasmBindgen, WASM_OPT_BIN: tools.wasmOpt, ESBUILD_BIN: tools.esbuild });
  await run(tools.workerBuild, ["--release"], { env });
  await run(tools.esbuild, ["js/entry.js", ...bundled]);
  const wasm = inRoot("build/index_bg.wasm");
  await run(tools.wasmOpt, [...optimise, wasm, "-o", wasm]);
  copyFileSync(wasm, inRoot(named));
  await run(tools.wasmOpt, [...strip, wasm, "-o", wasm]);
  writeFileSync(inRoot(stamp), wanted);
  note("built");
}

// wrangler runs out of the very node_modules that set-up might replace, so under wrangler only the build is done.
if (isMain(import.meta)) {
  await main(async () => {
    const alone = !process.env.WRANGLER_COMMAND;
    const step = steps(alone ? setupSteps + buildSteps : buildSteps);
    if (alone) await setup(step);
    await buildAll(step);
  });
}
