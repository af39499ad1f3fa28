// Every page of the console with something on it: it fits a telephone, and axe finds nothing grave.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { eventually } from "../harness/eventually.mjs";
import { startGateway } from "../harness/gateway.mjs";
import { button, openDesks, textOf, userPath } from "./desks.mjs";

const operatorPages = {
  users: "/users",
  user: userPath("ann"),
  plans: "/plans",
  plan: "/plans/team",
  "new-plan": "/new-plan",
  routing: "/routing",
  jobs: "/jobs",
  audit: "/audit",
  overview: "/",
};
const callerPages = { usage: "/", playground: "/playground", jobs: "/jobs", inbox: "/inbox" };

export function pages(language) {
  let gateway, desks, key;

  before(async () => {
    gateway = await startGateway({ assets: true });
    key = await someTraffic(gateway);
    desks = await openDesks(gateway, language);
  });
  after(async () => {
    await desks?.close();
    await gateway?.stop();
  });

  test("sign-in", async () => {
    await desks.operator.goto(`${gateway.url}/console/`);
    await desks.caller.goto(`${gateway.url}/me/`);
    await desks.picture(desks.operator, "console-sign-in");
    await desks.picture(desks.caller, "me-sign-in");
    await desks.signIn(desks.operator, "console", "console.token", gateway.adminToken);
    await desks.signIn(desks.caller, "me", "me.key", key);
    await button(desks.caller, desks.t("shell.signOut")).waitFor();
    desks.noSurprises();
  });

  for (const [name, path] of Object.entries(operatorPages)) {
    test(`the operator's ${name}`, async () => {
      await desks.open(desks.operator, "console", path);
      await desks.picture(desks.operator, `console-${name}`);
      desks.noSurprises();
    });
  }

  test("an endpoint's refusal rate is out of what its own limit let through and refused", async () => {
    const row = desks.operator.getByRole("table", { name: desks.t("overview.byEndpoint") }).getByRole("row", { name: "embeddings" });
    assert.deepEqual(await row.getByRole("cell").allTextContents(), ["0", "1", "100%"]);
  });

  for (const [name, path] of Object.entries(callerPages)) {
    test(`the caller's ${name}`, async () => {
      await desks.open(desks.caller, "me", path);
      await desks.picture(desks.caller, `me-${name}`);
      desks.noSurprises();
    });
  }

  test("the other language is one choice away", async () => {
    const other = language === "en" ? "zh" : "en";
    await desks.open(desks.operator, "console", "/users");
    await desks.operator.getByLabel(desks.t("pref.language")).selectOption(other);
    await desks.operator.getByRole("heading", { level: 1, name: textOf(other, "nav.users") }).waitFor();
    desks.noSurprises();
  });
}

/** Something for every table, chart and list to show; gives back the key of the user who made it. */
async function someTraffic(gateway) {
  const made = async (path, json, method = "POST") => {
    const answer = await gateway.admin(path, { json, method });
    assert.ok(answer.status < 300, `${path}: ${answer.text}`);
    return answer.body;
  };
  const endpoints = [{ name: "embeddings", max_requests: 0, per_seconds: 3600 }];
  await made("/admin/plans", { plan_id: "team", name: "Team", daily_limit: 5, monthly_token_limit: 2_000_000, endpoints, over_quota: { strategy: "queue" } });
  await made("/admin/users", { user_id: "ann", plan_id: "team", email: "ann@example.org", overrides: { monthly_token_limit: 3_000_000 } });
  await made("/admin/users", { user_id: "a-user-with-a-name-that-is-rather-long@department.example.org" });
  await made("/admin/models/mock-small", { upstream: "mock", aliases: ["small", "cheap"] }, "PUT");
  await made("/admin/models/far", { upstream: "openai", base_url: "https://llm.example.org/v1", secret_name: "FAR_KEY" }, "PUT");
  await made("/admin/routes", { path_prefix: "/reports", methods: ["GET"], upstream_url: "https://reports.example.org/v2", endpoint: "export" });
  const { key } = await made("/admin/users/ann/keys", { name: "laptop" });
  await made("/admin/users/ann/keys", { name: "service", scope: "service", expires_at: new Date(Date.now() + 86_400_000).toISOString().replace(/\.\d+/, "") });
  const json = { model: "mock-small", messages: [{ role: "user", content: "Hello" }] };
  const embedding = { model: "mock-small", input: "Hello" };
  const statuses = [(await gateway.call("/v1/embeddings", { key, json: embedding })).status];
  for (let n = 0; n < 7; n += 1) statuses.push((await gateway.call("/v1/chat/completions", { key, json })).status);
  statuses.push((await gateway.call("/api/ai/query", { key, json: { prompt: "Later" } })).status);
  assert.deepEqual(statuses, [429, 200, 200, 200, 200, 200, 429, 429, 202]);
  await eventually(async () => assert.ok((await gateway.admin("/admin/stats")).body.endpoints.length > 0));
  return key;
}
