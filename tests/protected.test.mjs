// An operator's own service behind the gateway: its users are held to their plan, and it notices nothing else.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { connect } from "node:net";
import { after, before, beforeEach, test } from "node:test";
import { gzipSync } from "node:zlib";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";
import { eventually } from "./harness/eventually.mjs";

let gateway, service, live;

before(async () => {
  service = await startUpstream();
  live = await startLive();
  gateway = await startGateway();
  const url = service.url;
  await routes([
    { path_prefix: "/reports", upstream_url: url, endpoint: "export" },
    { path_prefix: "/reports/big", upstream_url: `${url}/`, cost: 3 },
    { path_prefix: "/read", upstream_url: url, methods: ["GET"] },
    { path_prefix: "/moved", upstream_url: `${url}/internal/v2` },
    { path_prefix: "/slow", upstream_url: url, timeout_ms: 300 },
    { path_prefix: "/dead", upstream_url: "http://127.0.0.1:1" },
    { path_prefix: "/live", upstream_url: live.url },
    { path_prefix: "/v1/echo", upstream_url: url },
    { path_prefix: "/api", upstream_url: url },
    { path_prefix: "/half", upstream_url: "not a url" },
  ]);
});
after(async () => {
  await gateway.stop();
  await service.stop();
  live.server.closeAllConnections();
  live.server.close();
});
beforeEach(() => {
  service.reset();
  service.always({ body: { ok: true } });
});

/** A service that answers while it is still being told. */
async function startLive() {
  const seen = [];
  const server = createServer((request, response) => {
    request.on("data", (bytes) => {
      seen.push(String(bytes));
      if (seen.length === 1) response.write("first");
    });
    request.on("end", () => response.end("last"));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, seen, url: `http://127.0.0.1:${server.address().port}` };
}

/** The rows of protected routes, straight into the ledger. */
async function routes(rows) {
  for (const { methods, ...row } of rows) {
    const full = { route_id: `r-${row.path_prefix}`, methods: methods ? JSON.stringify(methods) : null, endpoint: null, cost: 1, timeout_ms: 5000, updated_at: "2026-01-01T00:00:00Z", ...row };
    const names = Object.keys(full);
    await gateway.d1.prepare(`INSERT INTO routes (${names}) VALUES (${names.map(() => "?")})`).bind(...Object.values(full)).run();
  }
}

let serial = 0;

/** A user on a plan of their own. */
async function caller(plan = {}) {
  const plan_id = `prot${++serial}`;
  await gateway.createPlan({ plan_id, daily_limit: 100, ...plan });
  const user_id = await gateway.createUser({ user_id: `u-${plan_id}`, plan_id });
  return { user_id, plan_id, key: await gateway.createKey(user_id) };
}

const call = (path, { key }, rest) => gateway.call(path, { key, ...rest });
const used = async ({ key }, name) => {
  const { body } = await gateway.call("/api/quota", { key });
  return body.policies.find((policy) => policy.name === name)?.used;
};

/** A connection on which a call has been begun, past every client's own ideas of paths and bodies. */
function dial(line, { key }, headers = []) {
  const { hostname, port } = new URL(gateway.url);
  const socket = connect(port, hostname);
  const lines = [line, `host: ${hostname}:${port}`, `authorization: Bearer ${key}`, "connection: close", ...headers];
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  return socket;
}

/** One call, read to the end of its answer. */
function raw(line, user, headers) {
  return new Promise((resolve, reject) => {
    const socket = dial(line, user, headers);
    let text = "";
    socket.on("error", reject);
    socket.on("data", (bytes) => {
      text += bytes;
      const [head, body] = text.split("\r\n\r\n", 2);
      const length = Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
      if (body === undefined || (body.length < length)) return;
      socket.destroy();
      resolve({ status: Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1]), text });
    });
  });
}

test("an endpoint has its own limit by plan: 5 an hour for one user, 100 for another", async () => {
  const free = await caller({ endpoints: [{ name: "export", max_requests: 5, per_seconds: 3600 }] });
  const enterprise = await caller({ endpoints: [{ name: "export", max_requests: 100, per_seconds: 3600 }] });
  for (let n = 0; n < 5; n++) assert.equal((await call("/reports/may", free)).status, 200);
  const refused = await call("/reports/may", free);
  assert.equal(refused.status, 429);
  assert.equal(refused.body.error.policy, "endpoint:export");
  assert.equal(refused.body.error.code, "rate_limit_exceeded");
  assert.match(refused.headers.get("retry-after"), /^[1-9]\d*$/);
  assert.equal(refused.headers.get("x-should-retry"), "false");
  assert.equal(refused.headers.get("x-sluice-decision"), "refused");
  assert.match(refused.headers.get("ratelimit"), /^"endpoint:export";r=0;t=\d+$/);
  assert.equal(service.count(), 5);
  const answers = await Promise.all(Array.from({ length: 110 }, () => call("/reports/may", { ...enterprise })));
  assert.equal(answers.filter((a) => a.status === 200).length, 100);
  assert.equal(service.count(), 105);
});

test("a call refused by one limit costs none of the others (B02)", async () => {
  const user = await caller({ daily_limit: 10, rate: { capacity: 10, refill_per_minute: 1 }, endpoints: [{ name: "export", max_requests: 2, per_seconds: 60 }] });
  const statuses = [];
  for (let n = 0; n < 6; n++) statuses.push((await call("/reports", user)).status);
  assert.deepEqual(statuses, [200, 200, 429, 429, 429, 429]);
  assert.equal((await call("/read", user)).status, 200);
  assert.deepEqual([await used(user, "daily"), await used(user, "rate"), await used(user, "endpoint:export")], [3, 3, 2]);

  const narrow = await caller({ daily_limit: 10, rate: { capacity: 1, refill_per_minute: 1 }, endpoints: [{ name: "export", max_requests: 5, per_seconds: 60 }] });
  assert.deepEqual([(await call("/reports", narrow)).status, (await call("/reports", narrow)).status], [200, 429]);
  assert.deepEqual([await used(narrow, "daily"), await used(narrow, "endpoint:export")], [1, 1]);
});

test("the service gets the call as it came, with who calls and without their credential", async () => {
  const user = await caller();
  const headers = {
    "x-api-key": user.key,
    "api-key": user.key,
    "x-sluice-user": "forged",
    "x-sluice-plan": "forged",
    "x-sluice-admin": "forged",
    "x-user-id": "forged",
    cookie: "session=1",
    "x-custom": "kept",
    "content-type": "text/csv",
  };
  const answer = await call("/reports/may?q=a%20b&q=c&empty=", user, { method: "PUT", body: "a,b\n1,2\n", headers });
  assert.equal(answer.status, 200);
  const { method, path, query, body, headers: seen } = service.last;
  assert.deepEqual([method, path, query, body], ["PUT", "/reports/may", "?q=a%20b&q=c&empty=", "a,b\n1,2\n"]);
  assert.deepEqual([seen["x-sluice-user"], seen["x-sluice-plan"]], [user.user_id, user.plan_id]);
  assert.deepEqual([seen.cookie, seen["x-custom"], seen["content-type"]], ["session=1", "kept", "text/csv"]);
  for (const name of ["authorization", "x-api-key", "api-key", "x-sluice-admin", "x-user-id"]) assert.equal(seen[name], undefined, name);
  assert.ok(!JSON.stringify(seen).includes(user.key));
});

test("the service's answer comes down as it is, and limits are told by the gateway alone", async () => {
  const user = await caller({ daily_limit: 7 });
  const headers = {
    "content-type": "text/csv",
    "set-cookie": ["a=1; Path=/", "b=2"],
    etag: '"1"',
    "x-service": "1",
    "x-ratelimit-limit": "999",
    "x-sluice-decision": "forged",
    "access-control-allow-origin": "*",
    "cache-control": "public, max-age=600",
    connection: "keep-alive, x-hop",
    "x-hop": "1",
  };
  service.next({ status: 201, body: "a,b\n", headers });
  const answer = await call("/reports", user);
  assert.deepEqual([answer.status, answer.text], [201, "a,b\n"]);
  const get = (name) => answer.headers.get(name);
  assert.deepEqual([get("content-type"), get("etag"), get("x-service")], ["text/csv", '"1"', "1"]);
  assert.deepEqual(answer.headers.getSetCookie(), ["a=1; Path=/", "b=2"]);
  assert.deepEqual([get("x-ratelimit-limit"), get("x-ratelimit-remaining"), get("x-sluice-decision")], ["7", "6", "allowed"]);
  assert.deepEqual([get("access-control-allow-origin"), get("x-hop"), get("cache-control")], [null, null, "no-store"]);
  assert.match(get("x-request-id"), /^req_/);
});

test("answers without a body, compressed ones and errors of the service's own pass untouched", async () => {
  const user = await caller();
  for (const status of [204, 304]) {
    service.next({ status, body: "" });
    const answer = await call("/reports", user);
    assert.deepEqual([answer.status, answer.text], [status, ""]);
  }
  service.next({ body: gzipSync("long ".repeat(1000)), headers: { "content-encoding": "gzip" } });
  const zipped = await call("/reports", user);
  assert.equal(zipped.text, "long ".repeat(1000));
  assert.equal(zipped.headers.get("content-encoding"), "gzip");
  for (const status of [400, 404, 422]) {
    service.next({ status, body: { mine: status } });
    const answer = await call("/reports", user);
    assert.deepEqual([answer.status, answer.body], [status, { mine: status }]);
  }
  const head = await call("/reports", user, { method: "HEAD" });
  assert.deepEqual([head.status, head.text, service.last.method], [200, "", "HEAD"]);
  await eventually(async () => assert.equal(await used(user, "daily"), 7, "the service's own 4xx is an answer"));
});

test("redirects are the caller's to follow", async () => {
  const user = await caller();
  service.next({ redirect: "https://elsewhere.example/x?y=1" });
  const answer = await call("/reports", user, { redirect: "manual" });
  assert.deepEqual([answer.status, answer.headers.get("location")], [302, "https://elsewhere.example/x?y=1"]);
  assert.ok(answer.headers.get("ratelimit"));
  assert.equal(service.count(), 1);
});

test("bodies of any size pass both ways, byte for byte", async () => {
  const user = await caller();
  service.on("/reports/echo", ({ bytes }) => ({ body: bytes, headers: { "content-type": "application/octet-stream" } }));
  const sent = randomBytes(5 << 20);
  const answer = await gateway.fetch("/reports/echo", { method: "POST", body: sent, headers: { authorization: `Bearer ${user.key}` } });
  const back = Buffer.from(await answer.arrayBuffer());
  const digest = (bytes) => createHash("sha256").update(bytes).digest("hex");
  assert.equal(digest(back), digest(sent));
});

test("nothing is buffered on the way up or down", async () => {
  const user = await caller();
  const socket = dial(`POST /live HTTP/1.1`, user, ["transfer-encoding: chunked"]);
  let got = "";
  socket.on("data", (bytes) => (got += bytes));
  socket.write("3\r\none\r\n");
  await eventually(() => assert.match(got, /first/, "the answer has begun while the call goes on"));
  assert.deepEqual(live.seen, ["one"]);
  socket.write("3\r\ntwo\r\n0\r\n\r\n");
  await eventually(() => assert.match(got, /last/));
  assert.deepEqual(live.seen, ["one", "two"]);
  socket.destroy();
});

test("methods that are not listed are 405 with Allow, and never reach the service", async () => {
  const user = await caller({ rate: { capacity: 100, refill_per_minute: 1 } });
  for (const method of ["POST", "DELETE"]) {
    const answer = await call("/read/x", user, { method });
    assert.equal(answer.status, 405);
    assert.equal(answer.headers.get("allow"), "GET, HEAD");
    assert.equal(answer.body.error.code, "method_not_allowed");
    assert.ok(answer.headers.get("ratelimit"));
  }
  assert.equal((await raw("PROPFIND /reports HTTP/1.1", user)).status, 405);
  assert.equal(service.count(), 0);
  assert.equal((await call("/read/x", user)).status, 200);
  assert.deepEqual([await used(user, "daily"), await used(user, "rate")], [1, 4], "a refused method meets the short limits only");
});

test("the longest prefix in whole segments decides, with its own cost", async () => {
  const user = await caller();
  assert.equal((await call("/reports/big/1", user)).status, 200);
  assert.equal(await used(user, "daily"), 3);
  assert.equal((await call("/moved/a/?b", user)).status, 200);
  assert.deepEqual([service.last.path, service.last.query], ["/internal/v2/a/", "?b"]);
  service.reset();
  for (const path of ["/reportsx", "/report", "/", "/half", "/x/reports", "/v1/echo", "/api", "/api/reports"]) {
    assert.equal((await call(path, user)).status, 404, path);
  }
  assert.equal(service.count(), 0);
});

test("no spelling of a path dodges a limit or reaches what nobody listed", async () => {
  const endpoints = [{ name: "export", max_requests: 1000, per_seconds: 3600 }];
  const user = await caller({ daily_limit: 1000, endpoints });
  const same = ["/reports/x", "//reports//x", "/%72eports/x", "/reports///x", "/repor%74s/%78"];
  for (const path of same) {
    const before = await used(user, "endpoint:export");
    const { status } = await raw(`GET ${path} HTTP/1.1`, user);
    assert.equal(status, 200, path);
    assert.equal(service.last.path, "/reports/x", path);
    assert.equal(await used(user, "endpoint:export"), before + 1, path);
  }
  // A slash at the end is another path for the service, and the same one for the limit.
  for (const path of ["/reports/", "/reports/x/"]) {
    const before = await used(user, "endpoint:export");
    const { status } = await raw(`GET ${path} HTTP/1.1`, user);
    assert.deepEqual([status, service.last.path], [200, path]);
    assert.equal(await used(user, "endpoint:export"), before + 1, path);
  }
  const counted = await used(user, "endpoint:export");
  service.reset();
  const refused = [
    "/reports%2fx", "/reports%2Fx", "/reports%5cx", "/reports;x=1", "/reports;/x", "/reports%3bx", "/reports/..;/x",
    "/reports/%00", "/reports/%0d%0ax", "/reports/%7f", "/reports/%c0%af", "/reports/%ff", "/reports/%zz", "/reports/%",
    "/reports/%252e%252e/x", "/reports/%252fx", "/%2572eports/x", "/reports/x%25%32%66",
    "/Reports/x", "/REPORTS", "/reports%20", "/reports.", "/reportsx", "/.reports",
  ];
  for (const path of refused) {
    const { status } = await raw(`GET ${path} HTTP/1.1`, user);
    assert.ok([400, 404].includes(status), `${path}: ${status}`);
  }
  assert.equal(service.count(), 0, JSON.stringify(service.requests.map((r) => r.path)));
  // Dot segments and backslashes are resolved by whatever URL parser stands in front, or refused here: either
  // way, what is forwarded is what was matched.
  for (const path of ["/reports/../secret", "/reports/%2e%2e/secret", "/x/../../etc", "/reports/..\\..\\secret", "/reports/.%2e/secret"]) {
    const { status } = await raw(`GET ${path} HTTP/1.1`, user);
    assert.ok([400, 404].includes(status), `${path}: ${status}`);
  }
  assert.equal(service.count(), 0);
  for (const path of ["/secret/../reports/x", "/reports/./x", "/a/%2e%2e/reports/x"]) {
    const { status } = await raw(`GET ${path} HTTP/1.1`, user);
    assert.ok([200, 400].includes(status), `${path}: ${status}`);
  }
  assert.equal(await used(user, "endpoint:export"), counted + service.count());
  assert.ok(service.requests.every((request) => request.path === "/reports/x"));
});

test("a service that is out, slow or failing gives the quota back; short limits stay counted", async () => {
  const user = await caller({ daily_limit: 10, rate: { capacity: 100, refill_per_minute: 1 } });
  const dead = await call("/dead", user);
  assert.deepEqual([dead.status, dead.body.error.code], [502, "upstream_unreachable"]);
  assert.match(dead.headers.get("ratelimit"), /"daily";r=10;/);
  service.next({ hang: true });
  const slow = await call("/slow", user);
  assert.deepEqual([slow.status, slow.body.error.code], [504, "upstream_timeout"]);
  await service.until((s) => s.last.gone);
  for (const status of [500, 503, 429]) {
    service.next({ status, body: { mine: status }, headers: { "retry-after": "7" } });
    const answer = await call("/reports", user);
    assert.deepEqual([answer.status, answer.body], [status, { mine: status }]);
    assert.equal(answer.headers.get("retry-after"), "7");
    assert.match(answer.headers.get("ratelimit"), /"daily";r=10;/);
  }
  assert.deepEqual([await used(user, "daily"), await used(user, "rate")], [0, 5]);
});

test("a caller who leaves before the answer stops the service and has paid", async () => {
  const user = await caller();
  service.next({ hang: true });
  const socket = dial("GET /reports HTTP/1.1", user);
  await service.until((s) => s.count() === 1);
  const left = Date.now();
  socket.resetAndDestroy();
  await service.until((s) => s.last.gone);
  assert.ok(Date.now() - left < 3000, "not only when the service's time is up");
  await eventually(async () => assert.equal(await used(user, "daily"), 1));
});

test("with a limit on calls under way, a call is under way until its last byte", async () => {
  const user = await caller({ max_concurrent: 1 });
  const events = Array.from({ length: 8 }, (_, n) => ({ n }));
  service.next({ events, chunkDelay: 100, done: false });
  const streaming = await gateway.fetch("/reports", { headers: { authorization: `Bearer ${user.key}` } });
  assert.equal(streaming.status, 200);
  const second = await call("/reports", user);
  assert.deepEqual([second.status, second.body.error.policy], [429, "concurrency"]);
  assert.equal((await streaming.text()).split("data: ").length - 1, 8);
  await eventually(async () => assert.equal((await call("/reports", user)).status, 200), 3000);

  service.next({ events, hangAfter: 3, done: false });
  const hanging = dial("GET /reports HTTP/1.1", user);
  await new Promise((resolve) => hanging.once("data", resolve));
  assert.equal((await call("/reports", user)).status, 429);
  hanging.resetAndDestroy();
  await eventually(async () => assert.equal((await call("/reports", user)).status, 200), 5000);

  service.next({ events, cutAfter: 2, done: false, headers: { "content-length": "1000" } });
  const cut = await gateway.fetch("/reports", { headers: { authorization: `Bearer ${user.key}` } });
  await assert.rejects(cut.text(), "a body that broke off must not look complete");
  await eventually(async () => assert.equal((await call("/reports", user)).status, 200), 3000);

  const whole = await call("/reports", user, { headers: { "accept-encoding": "identity" } });
  assert.equal(whole.headers.get("content-length"), String(whole.text.length));
});

test("a body that breaks off does not look complete", async () => {
  const user = await caller();
  service.next({ events: [{ n: 1 }], cutAfter: 0, done: false, headers: { "content-length": "1000" } });
  const answer = await gateway.fetch("/reports", { headers: { authorization: `Bearer ${user.key}` } });
  await assert.rejects(answer.text());
});

test("WebSockets are refused in words", async () => {
  const user = await caller();
  const handshake = ["upgrade: websocket", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==", "sec-websocket-version: 13"];
  const answer = await raw("GET /reports HTTP/1.1", user, handshake.concat("connection: upgrade"));
  assert.equal(answer.status, 400);
  assert.match(answer.text, /upgrade_not_supported/);
  assert.equal(service.count(), 0);
});

test("strangers are told to show a key, and nothing of paths that are nobody's", async () => {
  const stranger = await gateway.call("/reports/x");
  assert.equal(stranger.status, 401);
  assert.equal(stranger.headers.get("ratelimit"), null);
  assert.equal((await gateway.call("/nobodys")).status, 404);
  assert.equal((await gateway.call("/reports", { key: "slc_live_7Hq2mZ0dLxW4tYb9RkCs1NvE8gJp3U3YCseo" })).status, 401);
  assert.equal(service.count(), 0);
});

test("routes are read once in a while, and survive the ledger", async () => {
  const user = await caller();
  await call("/reports", user);
  await gateway.fault({ binding: "DB", mode: "error", match: "FROM routes" });
  try {
    await new Promise((resolve) => setTimeout(resolve, 5200));
    assert.equal((await call("/reports", user)).status, 200);
  } finally {
    await gateway.noFaults();
  }
});

test("a plan without anything left is refused before the service hears of it", async () => {
  const none = await caller({ daily_limit: 0 });
  assert.equal((await call("/reports", none)).status, 429);
  const spent = await caller({ monthly_token_limit: 0 });
  assert.equal((await call("/reports", spent)).status, 200, "a route costs calls, not tokens");
  assert.equal(service.count(), 1);
});
