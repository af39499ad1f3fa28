import { inRoot, node22 } from "./paths.mjs";
import { run } from "./run.mjs";

/** The program and first argument that start wrangler on the Node.js it needs. */
export const wranglerCommand = () => [node22(), inRoot("node_modules", "wrangler", "bin", "wrangler.js")];

/** Runs wrangler to its end, quietly unless it fails. */
export function wrangler(args) {
  const [program, script] = wranglerCommand();
  return run(program, [script, ...args], { show: false });
}
