// Callers with JSON Web Tokens, checked by a published key set, a public key or a shared secret, and callers
// named by a trusted front.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, describe, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { SignJWT, UnsecuredJWT, exportJWK, exportSPKI, generateKeyPair } from "jose";
import { startGateway } from "./harness/gateway.mjs";

const issuer = "https://id.example/";
const vars = { JWT_ISSUER: issuer, JWT_AUDIENCE: "sluice", JWT_PLAN_CLAIM: "https://id.example/plan" };
const algorithms = ["RS256", "ES256", "EdDSA"];
const secret = "a secret of these tests, 32 bytes or more";

/** An identity provider that publishes the keys it is given, as the test wants it to. */
class Issuer {
  fetches = 0;
  #pairs = new Map();
  answer = (response) => response.end(JSON.stringify({ keys: this.keys }));

  async start() {
    this.server = createServer((_, response) => {
      this.fetches += 1;
      this.answer(response);
    });
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.jwksUrl = `http://127.0.0.1:${this.server.address().port}/jwks`;
    for (const alg of algorithms) await this.addKey(alg, alg.toLowerCase());
    this.publish();
    return this;
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  async addKey(alg, kid) {
    const pair = await generateKeyPair(alg, { extractable: true });
    this.#pairs.set(kid, { ...pair, alg, jwk: { ...(await exportJWK(pair.publicKey)), kid, alg, use: "sig" } });
  }

  /** What is served from now on: every key there is. */
  publish() {
    this.keys = [...this.#pairs.values()].map((pair) => pair.jwk);
  }

  pem(kid) {
    return exportSPKI(this.#pairs.get(kid).publicKey);
  }

  /** A good token of `sub`, unless the changes spoil it. */
  token(sub, { kid = "es256", header, claims, key, alg } = {}) {
    const pair = this.#pairs.get(kid);
    const protectedHeader = { alg: alg ?? pair.alg, kid, ...header };
    return new SignJWT(claimsOf(sub, claims)).setProtectedHeader(protectedHeader).sign(key ?? pair.privateKey);
  }
}

const seconds = (offset) => Math.floor(Date.now() / 1000) + offset;
const claimsOf = (sub, changes) => ({ iss: issuer, aud: "sluice", sub, exp: seconds(300), ...changes });
const hs256 = (sub, key, claims) =>
  new SignJWT(claimsOf(sub, claims)).setProtectedHeader({ alg: "HS256" }).sign(new TextEncoder().encode(key));

const idOf = (sub) => `jwt:cc529d844da1:${sub}`;
const quota = (gateway, key, headers) => gateway.call("/api/quota", { key, headers });

async function assertUser(gateway, key, sub, headers) {
  const answer = await quota(gateway, key, headers);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.body.user_id, idOf(sub));
  return answer.body;
}

async function assertRefused(gateway, key, reason) {
  const answer = await quota(gateway, key);
  assert.equal(answer.status, 401, answer.text);
  assert.equal(answer.body.error.code, "invalid_api_key");
  const challenge = `Bearer realm="sluice", error="invalid_token", error_description="${reason}"`;
  assert.equal(answer.headers.get("www-authenticate"), challenge);
}

let identity, rotating;
before(async () => {
  identity = await new Issuer().start();
  rotating = await startRotating();
});
after(async () => {
  await rotating.gateway.stop();
  await rotating.issuer.stop();
  await identity.stop();
});

/** A gateway that fetched its keys just now, for the test that has to wait half a minute from here. */
async function startRotating() {
  const issuer = await new Issuer().start();
  const gateway = await startGateway({ vars: { ...vars, JWT_JWKS_URL: issuer.jwksUrl } });
  await assertUser(gateway, await issuer.token("ann"), "ann");
  return { issuer, gateway, due: Date.now() + 30_500 };
}

describe("a published key set", () => {
  let gateway;
  before(async () => {
    gateway = await startGateway({ vars: { ...vars, JWT_JWKS_URL: identity.jwksUrl } });
  });
  after(() => gateway.stop());

  for (const alg of algorithms) {
    test(`${alg} names the user, who is made on the first call`, async () => {
      await assertUser(gateway, await identity.token(`by-${alg}`, { kid: alg.toLowerCase() }), `by-${alg}`);
      const json = { model: "mock-small", messages: [{ role: "user", content: "hi" }] };
      const key = await identity.token(`by-${alg}`, { kid: alg.toLowerCase() });
      const answer = await gateway.call("/v1/chat/completions", { key, json });
      assert.equal(answer.status, 200, answer.text);
      const row = await gateway.d1.prepare("SELECT plan_id FROM users WHERE user_id = ?").bind(idOf(`by-${alg}`)).first();
      assert.equal(row.plan_id, "free");
    });
  }

  test("the keys were fetched once", () => assert.equal(identity.fetches, 1));

  test("a token is taken from x-api-key and api-key too, and beside a dummy", async () => {
    const token = await identity.token("ann");
    await assertUser(gateway, undefined, "ann", { "x-api-key": token });
    await assertUser(gateway, undefined, "ann", { "api-key": token });
    await assertUser(gateway, token, "ann", { "x-api-key": "dummy" });
    const two = await quota(gateway, token, { "x-api-key": await identity.token("bob") });
    assert.equal(two.status, 400);
  });

  test("Cloudflare Access's header counts if nothing better was shown", async () => {
    const assertion = { "cf-access-jwt-assertion": await identity.token("ann", { claims: { aud: ["x", "sluice"] } }) };
    await assertUser(gateway, undefined, "ann", assertion);
    await assertUser(gateway, "dummy", "ann", assertion);
    await assertUser(gateway, await identity.token("bob"), "bob", assertion);
    const key = await gateway.createKey(await gateway.createUser({ user_id: "by-key" }));
    assert.equal((await quota(gateway, key, assertion)).body.user_id, "by-key");
    const service = await identity.token("", { claims: { common_name: "e36.access" } });
    await assertUser(gateway, undefined, "service:e36.access", { "cf-access-jwt-assertion": service });
  });

  test("the plan may be named by a claim", async () => {
    const key = await identity.token("planned", { claims: { "https://id.example/plan": "pro" } });
    assert.equal((await assertUser(gateway, key, "planned")).plan.plan_id, "pro");
  });

  test("what is wrong is said", async () => {
    const other = await generateKeyPair("ES256");
    const claiming = (claims) => identity.token("ann", { claims });
    for (const [reason, token] of [
      ["expired", claiming({ exp: seconds(-61) })],
      ["no expiry", claiming({ exp: undefined })],
      ["not yet valid", claiming({ nbf: seconds(90) })],
      ["issuer", claiming({ iss: "https://id.example" })],
      ["audience", claiming({ aud: "other" })],
      ["audience", claiming({ aud: undefined })],
      ["subject", claiming({ sub: undefined })],
      ["signature", identity.token("ann", { key: other.privateKey })],
      ["unknown key", identity.token("ann", { header: { kid: "nobody's" } })],
      ["algorithm", identity.token("ann", { header: { kid: "rs256" } })],
      ["algorithm", new UnsecuredJWT(claimsOf("ann")).encode()],
      ["malformed", "a.b.c"],
      ["malformed", `${await claiming({})}=`],
    ]) {
      await assertRefused(gateway, await token, reason);
    }
    await assertUser(gateway, await claiming({ exp: seconds(-5) }), "ann");
  });

  test("a public key is no secret", async () => {
    for (const kid of ["rs256", "es256", "eddsa"]) {
      await assertRefused(gateway, await hs256("ann", await identity.pem(kid)), "algorithm");
    }
  });

  test("a token opens nothing of the operator's", async () => {
    const answer = await gateway.call("/admin/users", { key: await identity.token("ann") });
    assert.equal(answer.status, 403);
  });

  test("no token was logged", async () => assert.doesNotMatch(gateway.logs(), /eyJ/));
});

describe("a key set that can't be had", () => {
  let gateway, issuer;
  before(async () => {
    issuer = await new Issuer().start();
    gateway = await startGateway({ vars: { ...vars, JWT_JWKS_URL: issuer.jwksUrl } });
  });
  after(async () => {
    await gateway.stop();
    await issuer.stop();
  });

  const wrong = {
    "an error": (response) => response.writeHead(500).end(),
    "a redirect": (response) => response.writeHead(302, { location: identity.jwksUrl }).end(),
    "no JSON": (response) => response.end("<html>"),
    "no keys": (response) => response.end('{"keys":[]}'),
    "too much": (response) => response.end(JSON.stringify({ keys: issuer.keys, padding: "x".repeat(300_000) })),
    "a broken connection": (response) => response.destroy(),
    silence: () => {},
    "a body without an end": (response) => response.write("{"),
  };
  for (const [name, answer] of Object.entries(wrong)) {
    test(`${name} is "could not tell", never "no"`, async () => {
      const good = issuer.answer;
      issuer.answer = answer;
      await pause(1_000);
      const began = Date.now();
      const refused = await quota(gateway, await issuer.token("ann"));
      issuer.answer = good;
      assert.equal(refused.status, 503, refused.text);
      assert.equal(refused.body.error.code, "server_is_overloaded");
      assert.ok(refused.headers.has("retry-after"));
      assert.ok(Date.now() - began < 4_000);
    });
  }

  test("it is asked again, and many callers at once are all served", async () => {
    await pause(1_000);
    const subs = Array.from({ length: 8 }, (_, n) => `u${n}`);
    await Promise.all(subs.map(async (sub) => assertUser(gateway, await issuer.token(sub), sub)));
  });

  test("its keys outlive it", async () => {
    issuer.answer = wrong["an error"];
    await assertUser(gateway, await issuer.token("ann"), "ann");
  });
});

describe("keys in the settings", () => {
  let gateway;
  before(async () => {
    gateway = await startGateway({ vars: { ...vars, JWT_PUBLIC_KEY: await identity.pem("rs256") } });
  });
  after(() => gateway.stop());

  test("a PEM key takes its own algorithm only", async () => {
    await assertUser(gateway, await identity.token("ann", { kid: "rs256" }), "ann");
    await assertRefused(gateway, await identity.token("ann", { kid: "es256" }), "algorithm");
    await assertRefused(gateway, await hs256("ann", await identity.pem("rs256")), "algorithm");
  });

  test("a secret takes HS256 only", async () => {
    await gateway.restart({ vars: { JWT_PUBLIC_KEY: null }, secrets: { JWT_HS256_SECRET: secret } });
    await assertUser(gateway, await hs256("ann", secret), "ann");
    await assertRefused(gateway, await hs256("ann", `${secret}!`), "signature");
    await assertRefused(gateway, await identity.token("ann"), "algorithm");
  });

  test("settings that can't work let nobody in and say so", async () => {
    await gateway.restart({ vars: { JWT_ISSUER: null } });
    const answer = await quota(gateway, await hs256("ann", secret));
    assert.equal(answer.status, 500);
    const ready = await gateway.call("/readyz");
    assert.equal(ready.status, 503);
    assert.match(ready.text, /JWT_ISSUER is not set/);
  });

  test("without settings there are no tokens, nor Access's", async () => {
    await gateway.restart({ vars: { JWT_AUDIENCE: null, JWT_ISSUER: null }, secrets: { JWT_HS256_SECRET: null } });
    const token = await hs256("ann", secret);
    await assertRefused(gateway, token, "unknown");
    const answer = await quota(gateway, undefined, { "cf-access-jwt-assertion": token });
    assert.equal(answer.status, 401);
    assert.equal(answer.headers.get("www-authenticate"), 'Bearer realm="sluice"');
  });
});

describe("a trusted front", () => {
  let gateway;
  before(async () => {
    gateway = await startGateway({ secrets: { TRUSTED_PROXY_SECRET: "front-secret" } });
  });
  after(() => gateway.stop());

  const as = (user, rest) => quota(gateway, undefined, { "x-user-id": user, "x-gateway-secret": "front-secret", ...rest });

  test("names the user and the plan", async () => {
    assert.equal((await as("ann")).body.user_id, "ann");
    assert.equal((await as("bob", { "x-user-plan": "pro" })).body.plan.plan_id, "pro");
  });

  test("needs the secret", async () => {
    assert.equal((await as("ann", { "x-gateway-secret": "wrong" })).status, 401);
    assert.equal((await quota(gateway, undefined, { "x-user-id": "ann" })).status, 401);
    assert.equal((await as("")).status, 400);
    assert.equal((await as("a b")).status, 400);
  });

  test("is nobody where no secret is set", async () => {
    await gateway.restart({ secrets: { TRUSTED_PROXY_SECRET: null } });
    assert.equal((await as("ann")).status, 401);
  });
});

test("a new key is looked for, at most once in half a minute", async () => {
  const { issuer, gateway, due } = rotating;
  await issuer.addKey("ES256", "new");
  const rotated = await issuer.token("ann", { kid: "new" });
  await assertRefused(gateway, rotated, "unknown key");
  assert.equal(issuer.fetches, 1);
  await pause(Math.max(0, due - Date.now()));
  issuer.publish();
  await assertUser(gateway, rotated, "ann");
  assert.equal(issuer.fetches, 2);
  await assertRefused(gateway, await issuer.token("ann", { header: { kid: "nobody's" } }), "unknown key");
  assert.equal(issuer.fetches, 2);
});
