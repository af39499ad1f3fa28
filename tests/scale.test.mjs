// What `npm run scale` makes of what bench/scale.rs counts; the counting itself is tested there, by cargo.
import assert from "node:assert/strict";
import { test } from "node:test";
import { billed, bytesTable, costTable, crowdsTable, dollars, usersTable } from "../bench/scale.mjs";
import { prices } from "../bench/prices.mjs";

const asked = { calls: 100, leased: 50, object_requests: 200, object_rows: 300, publications: 40, starts: 1, kv_reads: 60, kv_writes: 2 };

test("everything that is billed is in the price list, and has its price", () => {
  for (const what of Object.keys(billed(asked))) assert.ok(prices[what], what);
  const month = 30 * 86_400;
  const rows = dollars(asked).find(([what]) => what === "object rows written")[1];
  assert.ok(Math.abs(rows - (300 * month) / 1e6) < 1e-6);
});

test("the tables hold a row for each setting", () => {
  const crowd = { crowd: "even", delay_s: 1, per_second: asked };
  assert.match(crowdsTable([crowd]), /^\| even +\| +1 s \| +50 % \|/m);
  assert.match(costTable([crowd]), /^\| all /m);
  assert.match(usersTable([{ rate: 1, isolates: 4, answer_ms: 200, per_call: { ...asked, calls: 1, leased: 0.5 } }]), /^\| 1 +\| +4 \| +0.2 s \| +50 % \|/m);
});

test("a row of the ledger takes some hundred bytes", () => {
  const sizes = [...bytesTable(2_000).matchAll(/^\| (\w+) +\| +(\d+) \|$/gm)].map(([, , bytes]) => Number(bytes));
  assert.equal(sizes.length, 4);
  for (const bytes of sizes) assert.ok(bytes > 50 && bytes < 1_000, String(bytes));
});
