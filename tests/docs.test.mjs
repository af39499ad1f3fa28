// The documentation: its links lead somewhere.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { inRoot } from "../scripts/lib/paths.mjs";

const ignored = /^(node_modules|target|build|public|\.git|\.venv|\.wrangler)$/;

function pages(folder = "") {
  const entries = readdirSync(inRoot(folder), { withFileTypes: true }).filter(({ name }) => !ignored.test(name));
  return entries.flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return pages(path);
    return path.endsWith(".md") ? [path] : [];
  });
}

const anchor = (heading) => heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-");

for (const page of pages()) {
  test(`links of ${page}`, () => {
    const prose = readFileSync(inRoot(page), "utf8").replace(/^```.*?^```$/gms, "");
    for (const [, link] of prose.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(link)) continue;
      const [file, fragment] = link.split("#");
      const target = file ? join(dirname(page), file) : page;
      assert.ok(existsSync(inRoot(target)), link);
      if (!fragment) continue;
      const headings = [...readFileSync(inRoot(target), "utf8").matchAll(/^#+ (.+)$/gm)].map(([, heading]) => anchor(heading));
      assert.ok(headings.includes(fragment), link);
    }
  });
}
