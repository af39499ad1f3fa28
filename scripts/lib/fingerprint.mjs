// Whether something has to be built again: one hash over all it is made from, kept beside what was made.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { inRoot } from "./paths.mjs";

/** The hash of files and whole folders, named from the root; what isn't there counts as absent. */
export function fingerprint(paths) {
  const hash = createHash("sha256");
  for (const path of paths.flatMap(filesUnder)) hash.update(`${path}\0`).update(readFileSync(inRoot(path))).update("\0");
  return hash.digest("hex");
}

export function upToDate(stamp, wanted, outputs) {
  return [stamp, ...outputs].every((path) => existsSync(inRoot(path))) && readFileSync(inRoot(stamp), "utf8") === wanted;
}

function filesUnder(path) {
  if (!existsSync(inRoot(path))) return [];
  if (!statSync(inRoot(path)).isDirectory()) return [path];
  const names = readdirSync(inRoot(path)).sort().filter((name) => name !== "node_modules");
  return names.flatMap((name) => filesUnder(`${path}/${name}`));
}
