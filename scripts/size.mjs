// The Worker as it is uploaded, gzipped, must stay below 1 MB.
import "./lib/node-version.mjs";
import { existsSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { inRoot, isMain } from "./lib/paths.mjs";
import { main, Stop } from "./lib/say.mjs";

const limit = 1_000_000;
const parts = ["index.js", "index_bg.wasm"];

export async function size(note) {
  let total = 0;
  for (const name of parts) {
    const path = inRoot("build", name);
    if (!existsSync(path)) throw new Stop("There is no build yet; `npm run build` makes it.");
    const bytes = readFileSync(path);
    const gzipped = gzipSync(bytes, { level: 9 }).length;
    total += gzipped;
    console.log(`      ${name.padEnd(14)} ${kb(bytes.length)}, gzipped ${kb(gzipped)}`);
  }
  if (total > limit) throw new Stop(`The Worker has ${kb(total)} gzipped, more than the ${kb(limit)} it may have.`);
  note(`${kb(total)} gzipped of at most ${kb(limit)}`);
}

const kb = (bytes) => `${(bytes / 1000).toFixed(1)} KB`;

if (isMain(import.meta)) {
  await main(() => size((text) => console.log(`      ${text}`)));
}
