// The operator's desk: plans, users, keys, models and routes, and how soon what is changed there bites.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "./harness/eventually.mjs";
import { startGateway } from "./harness/gateway.mjs";
import { startUpstream } from "./harness/upstream.mjs";

const hello = { model: "m-small", messages: [{ role: "user", content: "hi" }] };
let gateway, upstream;
let serial = 0;

before(async () => {
  upstream = await startUpstream();
  gateway = await startGateway({ upstream });
  await gateway.keepToDocument();
});
after(async () => {
  await gateway.stop();
  await upstream.stop();
});

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const name = (stem) => `${stem}-${++serial}`;
const chat = (key) => gateway.call("/v1/chat/completions", { key, json: hello });
const get = (path) => gateway.admin(path);
const post = (path, json = {}) => gateway.admin(path, { json });
const put = (path, json, headers) => gateway.admin(path, { method: "PUT", json, headers });
const patch = (path, json, headers) => gateway.admin(path, { method: "PATCH", json, headers });
const remove = (path, headers) => gateway.admin(path, { method: "DELETE", headers });

/** The answer has this status; its body. */
function ok(answer, status = 200) {
  assert.equal(answer.status, status, answer.text);
  return answer.body;
}

/** A 400 that names the field. */
function refused(answer, param) {
  const { error } = ok(answer, 400);
  assert.equal(error.type, "invalid_request_error");
  assert.equal(error.param, param, answer.text);
}

const open = { window: null, rate: null };
const newPlan = async (fields = {}) => ok(await post("/admin/plans", { plan_id: name("p"), name: "P", ...open, ...fields }), 201);
const newUser = async (fields = {}) => ok(await post("/admin/users", { user_id: name("u"), ...fields }), 201);
const newKey = async (user_id, fields = {}) => ok(await post(`/admin/users/${user_id}/keys`, fields), 201);

/** A user with a key, on a plan of their own. */
async function caller(plan = {}) {
  const { plan_id } = await newPlan(plan);
  const { user_id } = await newUser({ plan_id });
  const { key, key_id } = await newKey(user_id);
  return { plan_id, user_id, key, key_id };
}

const policy = async (user_id, named) => ok(await get(`/admin/users/${user_id}/quota`)).policies.find((p) => p.name === named);
const audits = async () => ok(await get("/admin/audit?limit=200")).data;

test("plans are created, read, changed and deleted", async () => {
  const plan = await newPlan({ daily_limit: 10, endpoints: [{ name: "export", max_requests: 5, per_seconds: 60 }] });
  assert.equal(plan.version, 1);
  assert.match(plan.updated_at, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  assert.deepEqual([plan.daily_limit, plan.monthly_token_limit, plan.rate, plan.shadow], [10, null, null, false]);
  const path = `/admin/plans/${plan.plan_id}`;
  const shown = await get(path);
  assert.deepEqual(ok(shown), plan);
  assert.equal(shown.headers.get("etag"), '"v1"');
  assert.equal(shown.headers.get("cache-control"), "no-store");

  const changed = await patch(path, { daily_limit: null, allowed_models: [], shadow: true });
  assert.deepEqual(ok(changed), { ...plan, daily_limit: null, allowed_models: [], shadow: true, version: 2, updated_at: changed.body.updated_at });
  assert.equal(changed.headers.get("etag"), '"v2"');
  assert.deepEqual(ok(await get(path)), changed.body);
  assert.equal(ok(await patch(path, {})).version, 2, "a change that changes nothing is none");

  ok(await post("/admin/plans", { plan_id: plan.plan_id, name: "again" }), 409);
  const { user_id } = await newUser({ plan_id: plan.plan_id });
  ok(await remove(path), 409);
  ok(await patch(`/admin/users/${user_id}`, { plan_id: "free" }));
  assert.equal((await remove(path)).status, 204);
  for (const gone of [await get(path), await patch(path, {}), await remove(path)]) ok(gone, 404);
});

test("a plan's every field comes back as it was written", async () => {
  const plan = {
    plan_id: name("full"), name: "Full", daily_limit: 0, monthly_token_limit: 9007199254740991, max_tokens_per_request: 1, max_tokens_mode: "clamp",
    allowed_models: ["mock-small", "gpt-*"], rate: { capacity: 0, refill_per_minute: 1 }, window: { max_requests: 3, minutes: 5 }, tokens_per_minute: 7,
    max_concurrent: 2, endpoints: [], reset: { mode: "rolling", timezone: "Asia/Tokyo", billing_day: 31 },
    over_quota: { strategy: "degrade", degrade_model: "mock-small", degrade_daily_limit: 5, queue_limit: 0 }, notify_at: [0.5], on_outage: "closed", shadow: false,
  };
  const { version, updated_at, ...shown } = ok(await post("/admin/plans", plan), 201);
  assert.deepEqual(shown, plan);
  const stored = ok(await get(`/admin/plans/${plan.plan_id}`));
  assert.deepEqual({ version, updated_at, ...plan }, { ...stored });
  const fresh = await newPlan();
  assert.equal(fresh.window, null);
  const unset = ok(await post("/admin/plans", { plan_id: name("p"), name: "P" }), 201);
  assert.ok(!("window" in unset), "a plan that says nothing of its window takes the gateway's");
});

test("what is no count, no field or no JSON is a 400 that names the field, and writes nothing", async () => {
  const { plan_id, user_id } = await caller();
  const before = await audits();
  const counts = ["daily_limit", "monthly_token_limit", "max_tokens_per_request", "tokens_per_minute", "max_concurrent"];
  for (const field of counts) {
    for (const bad of [-1, "10", 1.5, 2 ** 53, true, [1], {}]) {
      refused(await post("/admin/plans", { plan_id: name("bad"), name: "B", [field]: bad }), field);
      refused(await patch(`/admin/plans/${plan_id}`, { [field]: bad }), field);
      refused(await patch(`/admin/users/${user_id}`, { overrides: { [field]: bad } }), `overrides.${field}`);
    }
  }
  for (const [fields, param] of [
    [{ dayly_limit: 1 }, "dayly_limit"],
    [{ rate: { capacity: -1, refill_per_minute: 1 } }, "rate.capacity"],
    [{ rate: { capacity: 1 } }, "rate.refill_per_minute"],
    [{ rate: [1, 1] }, "rate"],
    [{ window: { max_requests: 1, minutes: 0 } }, "window.minutes"],
    [{ allowed_models: ["a*b"] }, "allowed_models[0]"],
    [{ allowed_models: "all" }, "allowed_models"],
    [{ endpoints: [{ name: "x", max_requests: 1, per_seconds: 1 }, { name: "x", max_requests: 1, per_seconds: 1 }] }, "endpoints[1].name"],
    [{ reset: { timezone: "Mars/Olympus" } }, "reset.timezone"],
    [{ reset: { billing_day: 32 } }, "reset.billing_day"],
    [{ over_quota: { strategy: "degrade" } }, "over_quota.degrade_model"],
    [{ notify_at: [0] }, "notify_at"],
    [{ shadow: "yes" }, "shadow"],
    [{ on_outage: "ajar" }, "on_outage"],
  ]) {
    refused(await post("/admin/plans", { plan_id: name("bad"), name: "B", ...fields }), param);
    refused(await patch(`/admin/plans/${plan_id}`, fields), param);
    refused(await patch(`/admin/users/${user_id}`, { overrides: fields }), `overrides.${param}`);
  }
  refused(await post("/admin/plans", { name: "B" }), "plan_id");
  refused(await post("/admin/plans", { plan_id: "b" }), "name");
  refused(await post("/admin/plans", { plan_id: "a b", name: "B" }), "plan_id");
  refused(await post("/admin/plans", { plan_id: "b", name: "x".repeat(201) }), "name");
  refused(await patch(`/admin/plans/${plan_id}`, { plan_id: "other" }), "plan_id");
  refused(await patch(`/admin/users/${user_id}`, { overrides: { name: "x" } }), "overrides.name");

  const raw = (body) => gateway.admin("/admin/plans", { method: "POST", body });
  for (const body of ["{", "[]", "3", '"x"', '{"plan_id":"b","name":"B","daily_limit":NaN}', '{"plan_id":"b","plan_id":"c","name":"B"}', '{"plan_id":"b","name":"B"} x']) {
    assert.equal((await raw(body)).status, 400, body);
  }
  ok(await raw(JSON.stringify({ plan_id: "b", name: "B", notes: "x".repeat(1 << 20) })), 413);
  assert.deepEqual(await audits(), before, "nothing was written");
});

test("If-Match: a stale version is a 412, and parallel changes without it all land", async () => {
  const { plan_id } = await newPlan({ daily_limit: 1 });
  const path = `/admin/plans/${plan_id}`;
  ok(await patch(path, { daily_limit: 2 }, { "if-match": '"v1"' }));
  const stale = await patch(path, { daily_limit: 3 }, { "if-match": '"v1"' });
  assert.equal(ok(stale, 412).error.code, "precondition_failed");
  assert.equal(ok(await get(path)).daily_limit, 2);
  ok(await patch(path, { daily_limit: 4 }, { "if-match": '"v9", "v2"' }));
  ok(await patch(path, { daily_limit: 5 }, { "if-match": "*" }));
  ok(await patch(path, { daily_limit: 6 }, { "if-match": "v4" }), 412);
  ok(await remove(path, { "if-match": '"v1"' }), 412);

  const fields = ["daily_limit", "monthly_token_limit", "tokens_per_minute", "max_concurrent", "max_tokens_per_request"];
  const answers = await Promise.all(fields.map((field, i) => patch(path, { [field]: 100 + i })));
  for (const answer of answers) ok(answer);
  const plan = ok(await get(path));
  assert.deepEqual(fields.map((field) => plan[field]), [100, 101, 102, 103, 104]);
  const one = await Promise.all(fields.map(() => patch(path, { daily_limit: ++serial }, { "if-match": `"v${plan.version}"` })));
  assert.deepEqual(one.map((a) => a.status).sort(), [200, 412, 412, 412, 412]);

  const user = await newUser();
  const userPath = `/admin/users/${user.user_id}`;
  const etag = (await get(userPath)).headers.get("etag");
  ok(await patch(userPath, { email: "a@b.example" }, { "if-match": etag }));
  ok(await patch(userPath, { email: "c@d.example" }, { "if-match": etag }), 412);
  ok(await remove(userPath, { "if-match": etag }), 412);
});

test("lists come in pages that neither repeat nor leave out", async () => {
  const stem = name("page");
  const ids = Array.from({ length: 7 }, (_, i) => `${stem}-${i}`);
  for (const user_id of ids) await newUser({ user_id });
  const seen = [];
  let cursor = "";
  do {
    const page = ok(await get(`/admin/users?q=${stem}&limit=3${cursor && `&cursor=${encodeURIComponent(cursor)}`}`));
    assert.ok(page.data.length <= 3);
    seen.push(...page.data.map((user) => user.user_id));
    cursor = page.next_cursor;
    if (seen.length === 3) ok(await remove(`/admin/users/${ids[0]}`).then((a) => ({ ...a, status: a.status === 204 ? 200 : a.status })));
  } while (cursor);
  assert.deepEqual(seen, ids);
  for (const list of ["plans", "users", "models", "routes", "audit"]) {
    assert.ok(Array.isArray(ok(await get(`/admin/${list}?limit=200`)).data));
    for (const limit of ["0", "201", "-1", "x", "1.5", ""]) {
      const answer = await get(`/admin/${list}?limit=${limit}`);
      refused(answer, "limit");
    }
    refused(await get(`/admin/${list}?cursor=%21%21`), "cursor");
  }
  const newest = await audits();
  assert.deepEqual(newest.map((row) => Number(row.id)), newest.map((row) => Number(row.id)).sort((a, b) => b - a));
  const { data, next_cursor } = ok(await get("/admin/audit?limit=2"));
  assert.deepEqual(ok(await get(`/admin/audit?limit=1&cursor=${next_cursor}`)).data[0].id, newest[2].id);
  assert.equal(data.length, 2);
});

test("users are created, found by the beginning of id or email, changed and deleted", async () => {
  const user_id = name("Ann@x/");
  const user = await newUser({ user_id, email: `${user_id.replaceAll(/[@/]/g, ".")}@Example.com`, webhook_url: "https://hooks.example.com/a", overrides: { daily_limit: 3 } });
  assert.deepEqual(
    [user.plan_id, user.status, user.overrides, user.webhook_url],
    ["free", "active", { daily_limit: 3 }, "https://hooks.example.com/a"],
  );
  const path = `/admin/users/${encodeURIComponent(user_id)}`;
  assert.deepEqual(ok(await get(path)), user);
  const found = async (q) => ok(await get(`/admin/users?q=${encodeURIComponent(q)}`)).data.map((one) => one.user_id);
  assert.deepEqual(await found(user_id.slice(0, -1)), [user_id]);
  assert.deepEqual(await found(user.email.toLowerCase()), [user_id]);
  assert.deepEqual(await found("%"), []);
  ok(await post("/admin/users", { user_id }), 409);

  const changed = ok(await patch(path, { email: null, overrides: null, status: "blocked" }));
  assert.deepEqual([changed.email, changed.overrides, changed.status, changed.webhook_url], [null, {}, "blocked", user.webhook_url]);
  assert.equal(changed.version, user.version + 1);
  for (const [fields, param] of [
    [{ user_id: "x" }, "user_id"],
    [{ plan_id: "nope" }, "plan_id"],
    [{ plan_id: null }, "plan_id"],
    [{ status: "asleep" }, "status"],
    [{ status: null }, "status"],
    [{ email: "nobody" }, "email"],
    [{ email: 1 }, "email"],
    [{ webhook_url: "ftp://x.example" }, "webhook_url"],
    [{ webhook_url: "https://u:p@x.example" }, "webhook_url"],
    [{ overrides: [] }, "overrides"],
    [{ overides: {} }, "overides"],
  ]) refused(await patch(path, fields), param);
  for (const [fields, param] of [
    [{}, "user_id"],
    [{ user_id: "" }, "user_id"],
    [{ user_id: "a b" }, "user_id"],
    [{ user_id: ".." }, "user_id"],
    [{ user_id: "x".repeat(129) }, "user_id"],
    [{ user_id: "x", plan_id: "nope" }, "plan_id"],
    [{ user_id: "x", status: "active" }, "status"],
  ]) refused(await post("/admin/users", fields), param);
  assert.equal((await remove(path)).status, 204);
  for (const gone of [await get(path), await patch(path, {}), await remove(path), await get(`${path}/keys`), await post(`${path}/keys`), await get(`${path}/quota`), await get(`${path}/usage`), await post(`${path}/reset`), await post(`${path}/grant`, { policy: "daily", amount: 1 })]) {
    ok(gone, 404);
  }
});

test("an unfit override can't be written, and one that a plan's edit made unfit does not stop a block", async () => {
  const { plan_id, user_id } = await caller({ over_quota: { strategy: "reject", degrade_model: "mock-small" } });
  ok(await patch(`/admin/users/${user_id}`, { overrides: { over_quota: { strategy: "degrade", degrade_model: "mock-small" } } }));
  await gateway.d1.prepare("UPDATE users SET overrides = '{\"gone\":1}' WHERE user_id = ?").bind(user_id).run();
  refused(await patch(`/admin/users/${user_id}`, { plan_id: "pro" }), "overrides.gone");
  ok(await patch(`/admin/users/${user_id}`, { status: "blocked" }));
  assert.ok(plan_id);
});

test("a key is shown once, and no answer, row or audit entry ever holds it or its hash", async () => {
  const { user_id, key, key_id } = await caller();
  const service = await newKey(user_id, { name: "svc", scope: "service", expires_at: "2099-01-01T00:00:00Z" });
  assert.match(service.key, /^slc_live_[0-9A-Za-z]{36}$/);
  assert.deepEqual([service.name, service.scope, service.last4, service.expires_at, service.revoked_at], ["svc", "service", service.key.slice(-4), "2099-01-01T00:00:00Z", null]);
  const listed = await get(`/admin/users/${user_id}/keys`);
  assert.deepEqual(ok(listed).data.map((one) => one.key_id).sort(), [key_id, service.key_id].sort());
  const hashes = (await gateway.d1.prepare("SELECT key_hash FROM api_keys WHERE user_id = ?").bind(user_id).all()).results.map((row) => row.key_hash);
  const audit = await get("/admin/audit?limit=200");
  for (const text of [listed.text, audit.text]) {
    for (const secret of [key, service.key, ...hashes]) assert.ok(!text.includes(secret));
  }
  for (const [fields, param] of [
    [{ scope: "admin" }, "scope"],
    [{ name: "" }, "name"],
    [{ name: "x".repeat(201) }, "name"],
    [{ expires_at: "2020-01-01T00:00:00Z" }, "expires_at"],
    [{ expires_at: "soon" }, "expires_at"],
    [{ expires_at: 1 }, "expires_at"],
    [{ key: "slc_live_mine" }, "key"],
  ]) refused(await post(`/admin/users/${user_id}/keys`, fields), param);
  ok(await post("/admin/keys/nope/rotate"), 404);
  ok(await remove("/admin/keys/nope"), 404);

  const own = ok(await gateway.call("/api/keys", { key }));
  assert.deepEqual(own.data.map((one) => Object.keys(one).sort()), [["created_at", "expires_at", "key_id", "last4", "name"], ["created_at", "expires_at", "key_id", "last4", "name"]]);
  ok(await gateway.call("/api/keys", { key, method: "POST", json: {} }), 405);
  ok(await gateway.call("/api/keys"), 401);
});

test("an expired key ends by itself, a rotated one with its overlap", async () => {
  const { user_id, key, key_id } = await caller();
  const brief = await newKey(user_id, { expires_at: new Date(Date.now() + 2_000).toISOString() });
  ok(await chat(brief.key));
  ok(await chat(key));
  const rotated = ok(await post(`/admin/keys/${key_id}/rotate`, { overlap_seconds: 3 }), 201);
  assert.notEqual(rotated.key, key);
  ok(await chat(rotated.key));
  ok(await chat(key));
  ok(await post(`/admin/keys/${key_id}/rotate`), 409);
  refused(await post(`/admin/keys/${rotated.key_id}/rotate`, { overlap_seconds: -1 }), "overlap_seconds");
  refused(await post(`/admin/keys/${rotated.key_id}/rotate`, { overlap_seconds: 10 ** 9 }), "overlap_seconds");
  await eventually(async () => ok(await chat(brief.key), 401));
  await eventually(async () => ok(await chat(key), 401));
  ok(await chat(rotated.key));
  const again = ok(await post(`/admin/keys/${rotated.key_id}/rotate`), 201);
  ok(await chat(rotated.key), 401);
  ok(await chat(again.key));
  assert.deepEqual(ok(await gateway.call("/api/keys", { key: again.key })).data.map((one) => one.key_id), [again.key_id]);
});

/** Calls ten times a second until told to stop; every answer with the time it was asked for. */
function traffic(key) {
  const answers = [];
  const pending = [];
  const timer = setInterval(() => {
    const at = Date.now();
    pending.push(chat(key).then((answer) => answers.push({ at, status: answer.status, code: answer.body?.error?.code })));
  }, 100);
  return {
    answers,
    async stop() {
      clearInterval(timer);
      await Promise.all(pending);
    },
  };
}

test("block, revoke, switch, override, delete and reset bite within 5 s under 10 calls a second", async () => {
  const shut = (await newPlan({ allowed_models: [] })).plan_id;
  const changes = {
    block: [403, (u) => patch(`/admin/users/${u.user_id}`, { status: "blocked" })],
    revoke: [401, (u) => remove(`/admin/keys/${u.key_id}`)],
    rotate: [401, (u) => post(`/admin/keys/${u.key_id}/rotate`)],
    switch: [403, (u) => patch(`/admin/users/${u.user_id}`, { plan_id: shut })],
    override: [429, (u) => patch(`/admin/users/${u.user_id}`, { overrides: { daily_limit: 0 } })],
    delete: [401, (u) => remove(`/admin/users/${u.user_id}`)],
  };
  const runs = await Promise.all(
    Object.entries(changes).map(async ([title, [status, act]]) => {
      const user = await caller();
      const calls = traffic(user.key);
      await sleep(1_500);
      const done = await act(user);
      assert.ok(done.status < 300, `${title}: ${done.text}`);
      const at = Date.now();
      await sleep(7_000);
      await calls.stop();
      return { title, status, at, user, answers: calls.answers };
    }),
  );
  for (const { title, status, at, answers } of runs) {
    assert.ok(answers.some((a) => a.at < at && a.status === 200), `${title}: it worked before`);
    const late = answers.filter((a) => a.at > at + 5_000);
    assert.ok(late.length >= 10, title);
    assert.deepEqual([...new Set(late.map((a) => a.status))], [status], title);
    const last = Math.max(0, ...answers.filter((a) => a.status === 200).map((a) => a.at - at));
    assert.ok(last < 5_000, `${title}: a call passed ${last} ms after`);
  }
  const back = runs.find((run) => run.title === "block").user;
  ok(await patch(`/admin/users/${back.user_id}`, { status: "active" }));
  ok(await chat(back.key));
});

test("reset and grant let an exhausted user on at once; what is reset or granted is told in the audit", async () => {
  const { user_id, key } = await caller({ daily_limit: 2, monthly_token_limit: 1_000_000 });
  const path = `/admin/users/${user_id}`;
  for (const status of [200, 200, 429]) ok(await chat(key), status);
  const quota = ok(await post(`${path}/reset`, { policies: ["daily"] }));
  assert.deepEqual([quota.object, quota.user_id], ["quota", user_id]);
  assert.equal((await policy(user_id, "daily")).used, 0);
  assert.ok((await policy(user_id, "monthly-tokens")).used > 0, "only what was named is reset");
  for (const status of [200, 200, 429]) ok(await chat(key), status);
  ok(await post(`${path}/reset`, { policies: [] }));
  ok(await chat(key), 429);
  const granted = ok(await post(`${path}/grant`, { policy: "daily", amount: 1 }));
  assert.equal(granted.policies.find((p) => p.name === "daily").limit, 3);
  for (const status of [200, 429]) ok(await chat(key), status);
  ok(await gateway.admin(`${path}/reset`, { method: "POST" }));
  assert.equal((await policy(user_id, "monthly-tokens")).used, 0);
  ok(await chat(key));
  for (const [body, param] of [
    [{ policies: ["dayly"] }, "policies[0]"],
    [{ policies: "daily" }, "policies"],
    [{ policy: "daily" }, "policy"],
  ]) refused(await post(`${path}/reset`, body), param);
  for (const [body, param] of [
    [{ policy: "rate", amount: 1 }, "policy"],
    [{ policy: "daily" }, "amount"],
    [{ policy: "daily", amount: 0 }, "amount"],
    [{ policy: "daily", amount: 1.5 }, "amount"],
    [{ policy: "daily", amount: 2 ** 53 }, "amount"],
    [{ policy: "daily", amount: 1, expires_at: "2020-01-01T00:00:00Z" }, "expires_at"],
  ]) refused(await post(`${path}/grant`, body), param);
  const free = await caller();
  refused(await post(`/admin/users/${free.user_id}/grant`, { policy: "daily", amount: 1 }), "policy");
  const own = (await audits()).filter((row) => row.target === user_id).map((row) => row.action);
  assert.deepEqual(own, ["user.reset", "user.grant", "user.reset", "user.create"]);
});

test("a limit lowered below what is used is told truthfully, and the next call is a 429", async () => {
  const { user_id, plan_id, key } = await caller({ daily_limit: 10 });
  for (let i = 0; i < 8; i++) ok(await chat(key));
  ok(await patch(`/admin/plans/${plan_id}`, { daily_limit: 5 }));
  await eventually(async () => assert.equal((await policy(user_id, "daily")).limit, 5));
  const mine = ok(await gateway.call("/api/quota", { key })).policies.find((p) => p.name === "daily");
  assert.deepEqual([mine.limit, mine.used, mine.remaining], [5, 8, 0]);
  const answer = await chat(key);
  ok(answer, 429);
  assert.equal(answer.headers.get("x-ratelimit-remaining"), "0");
  for (const path of [`/admin/users/${user_id}`, "/admin/users", "/admin/stats", "/admin/plans"]) ok(await get(path));
  ok(await patch(`/admin/plans/${plan_id}`, { daily_limit: 20 }));
  await eventually(async () => assert.equal((await policy(user_id, "daily")).remaining, 12));
});

test("no way of making keys, nor being born again, mints fresh quota", async () => {
  const { plan_id, user_id, key_id, key } = await caller({ daily_limit: 3 });
  for (const status of [200, 200, 200, 429]) ok(await chat(key), status);
  const spent = async (shown) => {
    ok(await chat(shown), 429);
    assert.equal(ok(await gateway.call("/api/quota", { key: shown })).policies.find((p) => p.name === "daily").used, 3);
  };
  const rotated = ok(await post(`/admin/keys/${key_id}/rotate`), 201);
  await spent(rotated.key);
  const second = await newKey(user_id);
  await spent(second.key);
  for (const id of [rotated.key_id, second.key_id]) assert.equal((await remove(`/admin/keys/${id}`)).status, 204);
  await spent((await newKey(user_id)).key);
  await eventually(async () => assert.equal((await gateway.quotaRow(user_id))?.used_today, 3));
  for (const wipe of [false, true]) {
    assert.equal((await remove(`/admin/users/${user_id}`)).status, 204);
    if (wipe) await gateway.account(user_id).wipe();
    await newUser({ user_id, plan_id });
    await spent((await newKey(user_id)).key);
  }
});

test("0 is none, null is unlimited, for each limit by itself", async () => {
  const zero = { daily_limit: 0, monthly_token_limit: 0, rate: { capacity: 0, refill_per_minute: 0 }, window: { max_requests: 0, minutes: 1 }, tokens_per_minute: 0, max_concurrent: 0 };
  for (const [field, value] of Object.entries(zero)) {
    const { key } = await caller({ [field]: value });
    const { status, body } = await chat(key);
    assert.ok(status === 429 || (status === 400 && body.error.code === "request_exceeds_quota"), `${field}: ${status}`);
  }
  const none = await caller({ allowed_models: [] });
  ok(await chat(none.key), 403);
  const all = await caller();
  const answer = await chat(all.key);
  ok(answer);
  for (const header of ["x-ratelimit-limit", "x-ratelimit-remaining", "ratelimit", "ratelimit-policy"]) {
    assert.equal(answer.headers.get(header), null, header);
  }
  assert.deepEqual(ok(await get(`/admin/users/${all.user_id}/quota`)).policies, []);
  upstream.always({ usage: { prompt_tokens: 40, completion_tokens: 60, total_tokens: 100 } });
  const tokens = await caller({ monthly_token_limit: 500, max_tokens_per_request: 100 });
  let passed = 0;
  for (let i = 0; i < 10; i++) passed += (await chat(tokens.key)).status === 200;
  assert.ok(passed >= 4 && passed <= 5, `${passed} calls of 100 tokens passed`);
});

test("D1 out does not un-revoke, and no fault makes an unknown caller a known one", async () => {
  const { user_id, key, key_id } = await caller();
  ok(await chat(key));
  assert.equal((await remove(`/admin/keys/${key_id}`)).status, 204);
  await gateway.faults([{ binding: "DB", mode: "error" }, { binding: "CACHE", mode: "error" }]);
  const status = (await chat(key)).status;
  await gateway.noFaults();
  assert.ok([401, 503].includes(status), `${status}`);
  ok(await chat(key), 401);
  assert.ok(user_id);
});

test("a change whose account is out of reach is saved, told as 503, repeatable, and repeated by itself", async () => {
  const { user_id, key, key_id } = await caller();
  ok(await chat(key));
  const out = { binding: "ACCOUNTS", mode: "error" };
  await gateway.faults([out]);
  const answer = await patch(`/admin/users/${user_id}`, { status: "blocked" });
  assert.equal(ok(answer, 503).error.code, "not_yet_in_force");
  assert.match(answer.headers.get("retry-after"), /^[1-9]\d*$/);
  assert.equal(ok(await get(`/admin/users/${user_id}`)).status, "blocked");
  await gateway.noFaults();
  assert.equal(ok(await patch(`/admin/users/${user_id}`, { status: "blocked" })).status, "blocked");
  ok(await chat(key), 403);

  await gateway.faults([out]);
  await eventually(async () => ok(await chat(key), 503), 7_000);
  ok(await patch(`/admin/users/${user_id}`, { status: "active" }), 503);
  await gateway.noFaults();
  await eventually(async () => ok(await chat(key)), 20_000);

  await gateway.faults([out]);
  const keysBefore = ok(await get(`/admin/users/${user_id}/keys`)).data;
  ok(await post(`/admin/keys/${key_id}/rotate`), 503);
  assert.deepEqual(ok(await get(`/admin/users/${user_id}/keys`)).data, keysBefore, "a rotation that failed leaves nothing behind");
  ok(await remove(`/admin/keys/${key_id}`), 503);
  ok(await post(`/admin/users/${user_id}/grant`, { policy: "daily", amount: 1 }), 503);
  await gateway.noFaults();
  assert.equal((await remove(`/admin/keys/${key_id}`)).status, 204);
  ok(await chat(key), 401);
});

test("a ledger that fails answers 503 and leaves neither half: no change without its audit entry", async () => {
  const { plan_id } = await newPlan({ daily_limit: 1 });
  for (const mode of ["error", "commit-then-error"]) {
    const { version, daily_limit } = ok(await get(`/admin/plans/${plan_id}`));
    const entries = (await audits()).filter((row) => row.target === plan_id).length;
    await gateway.faults([{ binding: "DB", mode, op: "batch", times: 1 }]);
    ok(await patch(`/admin/plans/${plan_id}`, { daily_limit: daily_limit + 1 }), 503);
    await gateway.noFaults();
    const landed = mode === "commit-then-error" ? 1 : 0;
    assert.equal(ok(await get(`/admin/plans/${plan_id}`)).version, version + landed);
    assert.equal((await audits()).filter((row) => row.target === plan_id).length, entries + landed);
    const again = ok(await patch(`/admin/plans/${plan_id}`, { daily_limit: daily_limit + 1 }));
    assert.deepEqual([again.daily_limit, again.version], [daily_limit + 1, version + 1]);
  }
});

test("models: the whole row is written, names are told apart, and the gateway's secrets are no provider's", async () => {
  const model = name("@cf/meta/m");
  const path = `/admin/models/${model}`;
  const body = { upstream: "openai", base_url: "https://llm.example.com/v1", secret_name: "OTHER_KEY", upstream_model: "real", aliases: [`${model}-alias`] };
  const made = ok(await put(path, body), 201);
  assert.deepEqual([made.model, made.version, made.aliases], [model, 1, body.aliases]);
  const same = await put(`/admin/models/${encodeURIComponent(model)}`, body);
  assert.equal(ok(same).version, 1);
  assert.deepEqual(ok(await get(path)), same.body);
  assert.ok(ok(await get("/admin/models?limit=200")).data.some((row) => row.model === model));
  const bare = ok(await put(path, { upstream: "mock" }, { "if-match": '"v1"' }));
  assert.deepEqual([bare.base_url, bare.secret_name, bare.upstream_model, bare.aliases, bare.version], [null, null, null, [], 2]);
  ok(await put(path, body, { "if-match": '"v1"' }), 412);
  ok(await put(`/admin/models/${name("m")}`, body, { "if-match": "*" }), 412);
  ok(await put(path, body));
  ok(await put(`/admin/models/${name("m")}`, { upstream: "mock", aliases: [model] }), 409);
  ok(await put(`/admin/models/${model}-alias`, { upstream: "mock" }), 409);
  for (const [fields, param] of [
    [{ upstream: "other" }, "upstream"],
    [{}, "upstream"],
    [{ upstream: "openai", base_url: "nope" }, "base_url"],
    [{ upstream: "openai", base_url: "https://a.example/?x=1" }, "base_url"],
    [{ upstream: "openai", secret_name: "KEY_PEPPER" }, "secret_name"],
    [{ upstream: "openai", secret_name: "JWT_HS256_SECRET" }, "secret_name"],
    [{ upstream: "openai", secret_name: "sk-live-123" }, "secret_name"],
    [{ upstream: "openai", aliases: ["a", "a"] }, "aliases[1]"],
    [{ upstream: "openai", aliases: [model] }, "aliases[0]"],
    [{ upstream: "openai", alias: [] }, "alias"],
  ]) refused(await put(path, fields), param);
  assert.equal((await remove(path)).status, 204);
  ok(await get(path), 404);
  ok(await remove(path), 404);
});

test("protected routes are created, changed and deleted", async () => {
  const path_prefix = `/${name("reports")}`;
  const body = { path_prefix, methods: ["GET"], upstream_url: "https://reports.example.com", endpoint: "export" };
  const made = ok(await post("/admin/routes", body), 201);
  assert.deepEqual([made.cost, made.timeout_ms, made.version, made.methods], [1, 30000, 1, ["GET"]]);
  const path = `/admin/routes/${made.route_id}`;
  assert.deepEqual(ok(await get(path)), made);
  ok(await post("/admin/routes", body), 409);
  ok(await post("/admin/routes", { ...body, route_id: made.route_id, path_prefix: `${path_prefix}x` }), 409);
  const other = ok(await post("/admin/routes", { ...body, route_id: name("r"), path_prefix: `${path_prefix}-b` }), 201);
  ok(await patch(`/admin/routes/${other.route_id}`, { path_prefix }), 409);
  const changed = ok(await patch(path, { methods: null, endpoint: null, cost: 3, timeout_ms: null }, { "if-match": '"v1"' }));
  assert.deepEqual([changed.methods, changed.endpoint, changed.cost, changed.timeout_ms, changed.version], [null, null, 3, 30000, 2]);
  ok(await patch(path, { cost: 4 }, { "if-match": '"v1"' }), 412);
  for (const [fields, param] of [
    [{ path_prefix: "reports" }, "path_prefix"],
    [{ path_prefix: "/v1/chat" }, "path_prefix"],
    [{ path_prefix: "/admin" }, "path_prefix"],
    [{ path_prefix: "/a/../b" }, "path_prefix"],
    [{ methods: ["get"] }, "methods"],
    [{ methods: "GET" }, "methods"],
    [{ upstream_url: "gopher://x.example" }, "upstream_url"],
    [{ upstream_url: "https://x.example/?a" }, "upstream_url"],
    [{ upstream_url: null }, "upstream_url"],
    [{ cost: 0 }, "cost"],
    [{ cost: "1" }, "cost"],
    [{ timeout_ms: 0 }, "timeout_ms"],
    [{ endpoint: "a b" }, "endpoint"],
    [{ route_id: "x" }, "route_id"],
  ]) refused(await patch(path, fields), param);
  for (const id of [made.route_id, other.route_id]) assert.equal((await remove(`/admin/routes/${id}`)).status, 204);
  ok(await get(path), 404);
});

test("in production no address within is taken, however it is spelt", async () => {
  const production = await startGateway({ vars: { ENVIRONMENT: "production" } });
  try {
    const admin = (path, init) => production.admin(path, init);
    const within = [
      "http://127.0.0.1", "http://localhost:8080", "http://2130706433", "http://0x7f.1", "http://0177.0.0.1", "http://[::1]", "http://[::ffff:10.0.0.1]",
      "http://169.254.169.254/latest/meta-data", "http://metadata.google.internal", "http://10.0.0.1", "http://192.168.0.1", "http://100.64.0.1", "http://intranet",
      "https://db.internal", "https://user:pass@api.example.com", "file:///etc/passwd",
    ];
    for (const url of within) {
      refused(await admin("/admin/routes", { json: { path_prefix: "/r", upstream_url: url } }), "upstream_url");
      refused(await admin("/admin/models/m", { method: "PUT", json: { upstream: "openai", base_url: url } }), "base_url");
      refused(await admin("/admin/users", { json: { user_id: "u", webhook_url: url } }), "webhook_url");
    }
    refused(await admin("/admin/users", { json: { user_id: "u", webhook_url: "http://hooks.example.com" } }), "webhook_url");
    ok(await admin("/admin/users", { json: { user_id: "u", webhook_url: "https://hooks.example.com" } }), 201);
    ok(await admin("/admin/routes", { json: { path_prefix: "/r", upstream_url: "http://api.example.com" } }), 201);
  } finally {
    await production.stop();
  }
});

test("statistics add up, by plan, day, reason and user", async () => {
  const { plan_id, user_id, key } = await caller({ daily_limit: 2, endpoints: [{ name: "embeddings", max_requests: 0, per_seconds: 60 }] });
  upstream.always({ usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 } });
  for (const status of [200, 200, 429, 429]) ok(await chat(key), status);
  await eventually(async () => {
    const stats = ok(await get("/admin/stats"));
    const plan = stats.plans.find((one) => one.plan_id === plan_id);
    assert.deepEqual(
      [plan?.allowed, plan?.refused, plan?.refused_by, plan?.tokens, plan?.refusal_rate, plan?.degraded, plan?.queued, plan?.failed_open],
      [2, 2, { daily: 2 }, 24, 0.5, 0, 0, 0],
    );
    const sum = (field) => stats.plans.reduce((all, one) => all + one[field], 0);
    for (const field of ["allowed", "refused", "degraded", "queued", "failed_open", "tokens"]) assert.equal(stats.totals[field], sum(field));
    const day = stats.days.find((one) => one.plan_id === plan_id);
    assert.deepEqual([day.allowed, day.refused, day.tokens], [2, 2, 24]);
    assert.ok(stats.top_users.length > 0 && stats.top_users.length <= 10);
    assert.ok(stats.top_users.every((one, i, all) => i === 0 || all[i - 1].calls >= one.calls));
  });
  const usage = ok(await get(`/admin/users/${user_id}/usage`)).data;
  assert.deepEqual([usage[0].calls, usage[0].rejected, usage[0].total_tokens], [2, 2, 24]);
  const past = ok(await get("/admin/stats?from=2020-01-01&to=2020-01-31"));
  assert.deepEqual([past.from, past.to, past.plans, past.totals.refusal_rate], ["2020-01-01", "2020-01-31", [], null]);
  refused(await get("/admin/stats?from=yesterday"), "from");
  refused(await get("/admin/stats?from=2020-01-02&to=2020-01-01"), "from");
});

test("statistics tell what the limit of an endpoint let through, also after the account lost its storage", async () => {
  const { user_id, key } = await caller({ endpoints: [{ name: "embeddings", max_requests: 3, per_seconds: 3600 }] });
  upstream.always({ usage: { prompt_tokens: 7, completion_tokens: 0, total_tokens: 7 } });
  const embed = () => gateway.call("/v1/embeddings", { key, json: { model: "m-small", input: "hi" } });
  const counted = async () => ok(await get("/admin/stats")).endpoints.find(({ name }) => name === "embeddings");
  assert.equal(await counted(), undefined);
  for (const status of [200, 200]) ok(await embed(), status);
  ok(await chat(key));
  await eventually(async () => assert.deepEqual(await counted(), { name: "embeddings", allowed: 2, refused: 0, refusal_rate: 0 }));
  await gateway.account(user_id).wipe();
  for (const status of [200, 200, 200, 429]) ok(await embed(), status);
  await eventually(async () => assert.deepEqual(await counted(), { name: "embeddings", allowed: 5, refused: 1, refusal_rate: 1 / 6 }));
});

test("the audit tells what was before and after, for every kind of write", async () => {
  const told = async (target) => (await audits()).filter((row) => row.target === target).reverse();
  const { plan_id } = await newPlan({ daily_limit: 1 });
  ok(await patch(`/admin/plans/${plan_id}`, { daily_limit: 2 }));
  await remove(`/admin/plans/${plan_id}`);
  const rows = await told(plan_id);
  assert.deepEqual(rows.map((row) => [row.actor, row.action]), [["admin", "plan.create"], ["admin", "plan.update"], ["admin", "plan.delete"]]);
  assert.deepEqual(rows.map((row) => [row.before?.daily_limit, row.after?.daily_limit]), [[undefined, 1], [1, 2], [2, undefined]]);
  assert.match(rows[0].at, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);

  const { user_id } = await newUser();
  const path = `/admin/users/${user_id}`;
  const { key_id } = await newKey(user_id);
  const next = ok(await post(`/admin/keys/${key_id}/rotate`), 201);
  for (const fields of [{ email: "a@b.example" }, { status: "blocked" }, { status: "active" }]) ok(await patch(path, fields));
  ok(await post(`${path}/reset`));
  ok(await post(`${path}/grant`, { policy: "daily", amount: 5 }));
  await remove(`/admin/keys/${next.key_id}`);
  await remove(`/admin/keys/${next.key_id}`);
  await remove(path);
  const actions = async (target) => (await told(target)).map((row) => row.action);
  assert.deepEqual(await actions(user_id), ["user.create", "user.update", "user.block", "user.unblock", "user.reset", "user.grant", "user.delete"]);
  assert.deepEqual(await actions(key_id), ["key.create", "key.rotate"]);
  assert.deepEqual(await actions(next.key_id), ["key.revoke"], "what changes nothing is not told");
  assert.equal((await told(key_id))[1].after.key_id, next.key_id);

  const model = name("m");
  ok(await put(`/admin/models/${model}`, { upstream: "mock" }), 201);
  ok(await put(`/admin/models/${model}`, { upstream: "openai" }));
  await remove(`/admin/models/${model}`);
  assert.deepEqual(await actions(model), ["model.create", "model.update", "model.delete"]);
  const { route_id } = ok(await post("/admin/routes", { path_prefix: `/${name("a")}`, upstream_url: "https://a.example" }), 201);
  ok(await patch(`/admin/routes/${route_id}`, { cost: 2 }));
  await remove(`/admin/routes/${route_id}`);
  assert.deepEqual(await actions(route_id), ["route.create", "route.update", "route.delete"]);
});

test("nobody but the operator gets past any route of the desk or to the metrics, and nothing is written", async () => {
  const { user_id, key } = await caller();
  const service = await newKey(user_id, { scope: "service" });
  const desk = ok(await get("/admin")).data;
  assert.ok(desk.length >= 30);
  const routes = [...desk, { method: "GET", path: "/metrics" }];
  const state = async () => {
    const tables = ["plans", "users", "api_keys", "models", "routes", "audit"];
    return Promise.all(tables.map(async (table) => (await gateway.d1.prepare(`SELECT * FROM ${table}`).all()).results));
  };
  const before = await state();
  const bodies = { plan_id: "stolen", name: "S", user_id: "stolen", upstream: "mock", path_prefix: "/stolen", upstream_url: "https://x.example", policy: "daily", amount: 1 };
  const strangers = [
    [undefined, 401],
    ["wrong-token", 401],
    [gateway.adminToken.slice(0, -1), 401],
    [`${gateway.adminToken}x`, 401],
    ["slc_live_7Hq2mZ0dLxW4tYb9RkCs1NvE8gJp3U3YCseo", 401],
    [key, 403],
    [service.key, 403],
  ];
  for (const { method, path } of routes) {
    const real = path.replace(/\{\w+\*?\}/, path.includes("/users/") ? user_id : "free");
    for (const [shown, status] of strangers) {
      const body = ["GET", "DELETE"].includes(method) ? {} : { json: bodies };
      const answer = await gateway.call(real, { key: shown, method, ...body });
      assert.equal(answer.status, status, `${method} ${path}: ${answer.text}`);
      assert.ok(!answer.text.includes(gateway.adminToken));
    }
    const inQuery = await gateway.call(`${real}?key=${gateway.adminToken}&access_token=${gateway.adminToken}`, { method });
    assert.equal(inQuery.status, 401, `${method} ${path}`);
  }
  assert.deepEqual(await state(), before);
  for (const path of ["/admin/nothing", "/admin", "/admin/"]) ok(await gateway.call(path), 401);
});

test("unknown paths are 404, wrong methods 405 with what is allowed", async () => {
  for (const path of ["/admin/nothing", "/admin/plans/", "/admin/users/x/y", "/admin/plans/a/b", "/admin/keys", "/admin/users/%FF"]) {
    ok(await get(path), 404);
  }
  const wrong = await put("/admin/plans", {});
  ok(wrong, 405);
  assert.equal(wrong.headers.get("allow"), "GET, POST");
  ok(await gateway.admin("/admin/audit", { method: "DELETE" }), 405);
});
