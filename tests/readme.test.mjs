// The README's first calls, run as they stand there, in both languages.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";
import { blocks } from "./harness/page.mjs";
import { run } from "./harness/shell.mjs";

const python = process.env.SLUICE_PYTHON ?? ".venv/bin/python";
let gateway;
before(async () => {
  gateway = await startGateway();
});
after(() => gateway.stop());

const here = (text, key) => text.replaceAll("http://localhost:8787", gateway.url).replaceAll("slc_live_…", key);

/** The script, and what it raised. */
const catching = (script) => `
try:
    exec(${JSON.stringify(script)})
except Exception as error:
    print(type(error).__name__, error.code)
`;

for (const page of ["README.md", "README.zh-CN.md"]) {
  const block = (language, word) => {
    const found = blocks(page).filter((one) => one.language === language && one.text.includes(word));
    assert.equal(found.length, 1, `${language} with ${word} in ${page}`);
    return found[0].text;
  };

  test(`${page}: curl, the OpenAI SDK, and the eleventh call of a free user`, { timeout: 120_000 }, async () => {
    const key = await gateway.createKey(await gateway.createUser({ plan_id: "free" }));
    const curl = await run("sh", ["-c", here(block("sh", "curl -i"), key)], { ...process.env, SLUICE_KEY: key, no_proxy: "*" });
    assert.match(curl.output, /HTTP\/1.1 200 OK/);
    assert.match(curl.output, /^x-ratelimit-remaining: 9\r?$/im);
    assert.match(curl.output, /"object":"chat\.completion"/);

    const script = here(block("python", "OpenAI("), key);
    const sdk = await run(python, ["-c", script]);
    assert.equal(sdk.code, 0, sdk.output);
    assert.ok(sdk.output.trim().length > 0);

    for (let i = 2; i < 10; i++) {
      const answer = await gateway.call("/v1/chat/completions", { key, json: { model: "mock-small", messages: [{ role: "user", content: "Hello" }] } });
      assert.equal(answer.status, 200, answer.text);
    }
    const refused = await run(python, ["-c", catching(script)]);
    assert.equal(refused.output.trim(), "RateLimitError insufficient_quota");
    const quota = await gateway.call("/api/quota", { key });
    assert.deepEqual(quota.body.policies.filter(({ name }) => name === "daily").map(({ used, remaining }) => [used, remaining]), [[10, 0]]);
  });
}
