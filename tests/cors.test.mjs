// Pages of the origins in CORS_ORIGINS may read every answer, refusals too; pages of others may read none.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { newCaller } from "./harness/caller.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const CHAT = "/v1/chat/completions";
const app = "https://app.example.com";
const others = ["https://app.example.com.evil.example", "http://app.example.com", "https://app.example.com:8443", "https://APP.example.com", "null"];
let gateway, upstream, user;

before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream, vars: { CORS_ORIGINS: app } });
  await gateway.keepToDocument();
  user = await newCaller(gateway, { daily_limit: 2 });
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

/** A page of `origin` may read this answer, and all that it says of limits. */
function readable({ headers }, origin = app) {
  assert.equal(headers.get("access-control-allow-origin"), origin);
  assert.match(headers.get("vary"), /\borigin\b/i);
  const exposed = headers.get("access-control-expose-headers").split(", ");
  const told = [...headers.keys()].filter((name) => /ratelimit|^retry-after|^x-should-retry|^x-sluice-|request-id|^www-authenticate/.test(name));
  for (const name of ["ratelimit", "ratelimit-policy", "retry-after", "x-ratelimit-remaining", "x-should-retry", ...told]) assert.ok(exposed.includes(name), name);
}

function unreadable({ headers }) {
  for (const name of headers.keys()) assert.doesNotMatch(name, /^access-control-/);
  assert.match(headers.get("vary"), /\borigin\b/i, "a cache keeps the answers of two origins apart");
}

const preflight = (origin) =>
  gateway.call(CHAT, {
    method: "OPTIONS",
    headers: { origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type,x-stainless-os,x-of-nobody" },
  });
const from = (origin) => ({ headers: { origin } });

test("a preflight grants the methods and the headers that are known", async () => {
  const answer = await preflight(app);
  assert.equal(answer.status, 204);
  readable(answer);
  assert.match(answer.headers.get("access-control-allow-methods"), /\bPOST\b/);
  assert.equal(answer.headers.get("access-control-allow-headers"), "authorization, content-type, x-stainless-os");
});

test("an answer, whole or streamed, and every error can be read", async () => {
  for (const stream of [false, true]) {
    const answer = await user.chat({ stream }, from(app));
    assert.equal(answer.status, 200, answer.text);
    readable(answer);
  }
  const errors = [
    [await gateway.call(CHAT, { json: {}, ...from(app) }), 401],
    [await gateway.call(CHAT, { key: user.key, body: "{", ...from(app) }), 400],
    [await user.post("/v1/nothing", {}, from(app)), 404],
    [await gateway.call(CHAT, { key: user.key, ...from(app) }), 405],
    [await user.chat({}, from(app)), 429],
    [await user.post("/v1/messages", { model: "m-small", messages: [{ role: "user", content: "hi" }], max_tokens: 5 }, from(app)), 429],
  ];
  for (const [answer, status] of errors) {
    assert.equal(answer.status, status, answer.text);
    readable(answer);
  }
});

test("another origin is granted nothing and may read nothing", async () => {
  for (const origin of others) {
    const asked = await preflight(origin);
    assert.equal(asked.status, 204);
    unreadable(asked);
    unreadable(await gateway.call("/api/quota", { key: user.key, ...from(origin) }));
    unreadable(await gateway.call("/api/quota", from(origin)));
  }
  unreadable(await gateway.call("/api/quota", { key: user.key }));
});

test("several origins and all of them", async () => {
  const second = "https://two.example.com";
  await gateway.restart({ vars: { CORS_ORIGINS: `${app}, ${second}` } });
  for (const origin of [app, second]) readable(await gateway.call("/api/quota", { key: user.key, ...from(origin) }), origin);
  unreadable(await gateway.call("/api/quota", { key: user.key, ...from("https://three.example.com") }));
  await gateway.restart({ vars: { CORS_ORIGINS: "*" } });
  readable(await gateway.call("/api/quota", { key: user.key, ...from(second) }), second);
  await gateway.restart({ vars: { CORS_ORIGINS: "" } });
  unreadable(await gateway.call("/api/quota", { key: user.key, ...from(app) }));
});
