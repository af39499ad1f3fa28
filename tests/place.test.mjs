// Where accounts are created is the operator's to say, once and for all of them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { startGateway } from "./harness/gateway.mjs";

async function placed(vars) {
  const gateway = await startGateway({ vars });
  try {
    const key = await gateway.createKey(await gateway.createUser());
    assert.equal((await gateway.call("/api/quota", { key })).status, 200);
    const places = Object.keys(await gateway.calls()).filter((name) => name.startsWith("ACCOUNTS at "));
    return [places, await gateway.call("/readyz")];
  } finally {
    await gateway.stop();
  }
}

test("near whoever asks first, or where the operator wants all of them", async () => {
  assert.deepEqual((await placed({}))[0], []);
  const [places, ready] = await placed({ ACCOUNT_LOCATION: "weur" });
  assert.deepEqual([places, ready.status], [["ACCOUNTS at weur"], 200]);
});

test("a place that there is not is passed over and complained of", async () => {
  const [places, ready] = await placed({ ACCOUNT_LOCATION: "atlantis" });
  assert.deepEqual([places, ready.status], [[], 503]);
  assert.match(ready.text, /ACCOUNT_LOCATION/);
});
