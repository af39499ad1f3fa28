// The tap that hears how a stream ends rests on the runtime: its tests also pass on the workerd that wrangler brings,
// which is newer than the one the other tests run on.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { inRoot } from "../scripts/lib/paths.mjs";
import { run } from "./harness/shell.mjs";

const here = createRequire(import.meta.url);
const wranglers = createRequire(here.resolve("wrangler/package.json"));
const version = (require) => require("workerd/package.json").version;

test(`streams and hang-ups on workerd ${version(wranglers)}`, { timeout: 280_000 }, async () => {
  assert.ok(version(wranglers) > version(here), "wrangler's is the newer one");
  const { NODE_TEST_CONTEXT, ...env } = process.env;
  env.MINIFLARE_WORKERD_PATH = wranglers("workerd").default;
  const files = ["streams", "hangups"].map((name) => inRoot("tests", `${name}.test.mjs`));
  const { code, output } = await run(process.execPath, ["--test", "--test-concurrency=2", "--test-force-exit", "--test-reporter=tap", ...files], env);
  assert.equal(code, 0, output);
  assert.ok(Number(/^# pass (\d+)$/m.exec(output)[1]) > 40, output);
});
