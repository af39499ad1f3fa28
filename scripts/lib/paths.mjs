import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { existsSync, realpathSync } from "node:fs";

export const root = fileURLToPath(new URL("../../", import.meta.url));
export const inRoot = (...parts) => join(root, ...parts);

/** Where the Rust build tools are kept, shared by all clones on this machine. */
export const toolsDir = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "sluice-tools");

const modulesBin = inRoot("node_modules", ".bin");

/** The Node.js that wrangler and the tests need (22 or newer): the one from npm, else this very process. */
export function node22() {
  const own = inRoot("node_modules", "node", "bin", process.platform === "win32" ? "node.exe" : "node");
  return existsSync(own) ? own : process.execPath;
}

/** The environment for every child: our tools first on PATH, and nothing reports usage to anybody. */
export function toolEnv(extra = {}) {
  const path = [modulesBin, join(toolsDir, "bin"), process.env.PATH].join(delimiter);
  return { ...process.env, PATH: path, WRANGLER_SEND_METRICS: "false", ...extra };
}

/** Whether a module is the script that was started, and not imported by another one. */
export function isMain(meta) {
  return Boolean(process.argv[1]) && realpathSync(process.argv[1]) === fileURLToPath(meta.url);
}
