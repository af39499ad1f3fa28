// Weighs what each page loads (its HTML and everything it refers to, gzipped) and fails above the budget.
import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const BUDGET_BYTES = 150 * 1024;
const publicDir = fileURLToPath(new URL('../../public', import.meta.url));
const PAGES = ['console/index.html', 'me/index.html'];
// Lazily imported chunks count too: a page is weighed as if everything had been opened.
const REFERENCE = /["'`(](\.{0,2}\/[^"'`()\s]+\.(?:js|css|svg))["'`)]/g;

async function weigh(path, seen = new Set()) {
  if (seen.has(path)) return 0;
  seen.add(path);
  const text = await readFile(path, 'utf8');
  let bytes = gzipSync(text, { level: 9 }).length;
  for (const [, reference] of text.matchAll(REFERENCE)) {
    const next = reference.startsWith('/') ? publicDir + reference : resolve(dirname(path), reference);
    bytes += await weigh(next, seen);
  }
  return bytes;
}

let tooHeavy = false;
for (const page of PAGES) {
  const bytes = await weigh(`${publicDir}/${page}`);
  const fits = bytes <= BUDGET_BYTES;
  tooHeavy ||= !fits;
  console.log(`${fits ? 'ok  ' : 'OVER'} ${page} ${(bytes / 1024).toFixed(1)} of ${BUDGET_BYTES / 1024} KB gzipped`);
}
process.exitCode = tooHeavy ? 1 : 0;
