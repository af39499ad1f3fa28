// Builds the console's static files into public/.
import { writeFileSync } from "node:fs";
import { fingerprint, upToDate } from "./lib/fingerprint.mjs";
import { inRoot } from "./lib/paths.mjs";
import { run } from "./lib/run.mjs";

const inputs = ["console", "scripts/console.mjs"];
const outputs = ["public/console/index.html", "public/me/index.html"];
const stamp = "console/node_modules/.built";

/** Whether the pages in public/ were made from what is here now. */
export const consoleIsBuilt = (wanted = fingerprint(inputs)) => upToDate(stamp, wanted, outputs);

export async function buildConsole(note) {
  const wanted = fingerprint(inputs);
  if (consoleIsBuilt(wanted)) return note("unchanged since the last build");
  const npm = (...args) => run("npm", ["--prefix", inRoot("console"), ...args], { show: false });
  const lock = fingerprint(["console/package-lock.json"]);
  const packages = "console/node_modules/.installed";
  if (!upToDate(packages, lock, [])) {
    await npm("ci", "--no-audit", "--no-fund", "--loglevel=error");
    writeFileSync(inRoot(packages), lock);
  }
  await npm("run", "build");
  writeFileSync(inRoot(stamp), wanted);
  note("built");
}
