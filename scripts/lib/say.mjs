// What the scripts say while they work: numbered steps with their time, and one clear sentence when they stop.
import { endWithoutTrace } from "./processes.mjs";

/** A reason to stop that the reader can act on; printed as one sentence, without a stack trace. */
export class Stop extends Error {}

/** Numbered steps: `const step = steps(6); await step("Compiling", async (note) => { … note("cached"); })`. */
export function steps(total) {
  let done = 0;
  return async function step(title, work) {
    done += 1;
    const started = Date.now();
    let note = "";
    console.log(`[${done}/${total}] ${title}`);
    const result = await work((text) => (note = text));
    console.log(`      ${note || "done"} (${seconds(started)})`);
    return result;
  };
}

export function seconds(since) {
  return `${((Date.now() - since) / 1000).toFixed(1)} s`;
}

/** Runs a script's main function; anything it throws ends the process with status 1. */
export async function main(work) {
  let ending = false;
  endWithoutTrace(() => (ending = true));
  try {
    await work();
    process.exit(0);
  } catch (error) {
    if (ending) return;
    console.error(error instanceof Stop ? `\nsluice: ${error.message}` : error);
    process.exit(1);
  }
}
