// An operator and a caller at work: from the first sign-in to the answer that had to wait for the next day.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway } from "../harness/gateway.mjs";
import { eventually } from "../harness/eventually.mjs";
import { button, openDesks } from "./desks.mjs";

const DAY = 86_400_000;
const refusedChat = /^429 POST \/v1\/chat\/completions/;
// An id that has to be escaped everywhere on its way.
const user = "dept/ann+1@example.org";

export function work(language) {
  let gateway, desks, operator, caller, key, t;

  before(async () => {
    gateway = await startGateway({ assets: true });
    // Ten seconds a call once the burst is spent: long enough to watch, short enough to wait for.
    await gateway.createPlan({ plan_id: "sprint", name: "Sprint", rate: { capacity: 2, refill_per_minute: 6 } });
    await gateway.createPlan({ plan_id: "pair", name: "Pair", daily_limit: 2, over_quota: { strategy: "queue" } });
    desks = await openDesks(gateway, language);
    ({ operator, caller } = desks);
    t = (key, params) => desks.t(key, params);
  });
  after(async () => {
    await desks?.close();
    await gateway?.stop();
  });

  const message = () => caller.getByLabel(t("playground.message"), { exact: true });
  const ask = async (question) => {
    await message().fill(question);
    await caller.locator(".composer [type=submit]:enabled").waitFor();
    await message().press("Enter");
  };
  const turn = () => caller.locator(".turn").last();
  const countdown = () => turn().locator(".countdown time");

  test("the operator signs in with the admin token, and with nothing else", async () => {
    await operator.goto(`${gateway.url}/console/`);
    assert.equal(await operator.locator("html").getAttribute("lang"), language === "zh" ? "zh-CN" : "en");
    await desks.signIn(operator, "console", "console.token", "not-the-token");
    await operator.getByText(t("error.401.title")).waitFor();
    await desks.picture(operator, "console-sign-in");
    desks.noSurprises(/^401 GET \/admin\/plans/);
    await desks.signIn(operator, "console", "console.token", gateway.adminToken);
    await operator.getByRole("heading", { level: 1, name: t("nav.overview") }).waitFor();
    await operator.getByText(t("overview.alerts.none")).waitFor();
    desks.noSurprises();
  });

  test("the operator creates a user and a key", async () => {
    await desks.open(operator, "console", "/users");
    await desks.change(t("users.new"), t("users.create"), async (form) => {
      await form.getByLabel(t("field.user_id"), { exact: true }).fill(user);
      await form.getByLabel(t("field.plan_id"), { exact: true }).selectOption("sprint");
    });
    await operator.getByRole("heading", { level: 1, name: user }).waitFor();
    await desks.change(t("keys.new"), t("keys.create"), (form) => form.getByLabel(t("field.name"), { exact: true }).fill("laptop"));
    key = await desks.dialog().getByLabel(t("col.key"), { exact: true }).inputValue();
    assert.match(key, /^slc_live_\w{36}$/);
    await button(desks.dialog(), t("action.close")).click();
    await operator.getByRole("row", { name: key.slice(-4) }).waitFor();
    assert.ok(!(await operator.content()).includes(key), "a key is shown once");
    desks.noSurprises();
  });

  test("the user signs in with it, and a question waits until there is a model to ask", async () => {
    let letThrough;
    const held = new Promise((resolve) => (letThrough = resolve));
    await caller.route("**/v1/models", (route) => held.then(() => route.continue()));
    await desks.signIn(caller, "me", "me.key", key);
    await caller.getByText(t("usage.plan", { plan: "Sprint" })).waitFor();
    await desks.open(caller, "me", "/playground");
    await message().fill("too early");
    await message().press("Enter");
    assert.deepEqual([await message().inputValue(), await turn().count()], ["too early", 0]);
    letThrough();
    await button(caller, t("playground.send")).click();
    await turn().getByText(t("playground.answer")).waitFor();
    await caller.unroute("**/v1/models");
    desks.noSurprises();
  });

  test("the user waits a short limit out", async () => {
    await askUntilRefused();
    assert.ok((await turn().getByRole("alert").textContent()).includes(t("playground.ranOut.limit", { policy: t("policy.rate"), limit: 2 })));
    assert.equal(await button(turn(), t("playground.queue")).count(), 0, "a short limit is not worth a job");
    const first = await secondsLeft();
    assert.ok(first > 2 && first <= 12, `${first} s`);
    await eventually(async () => assert.ok((await secondsLeft()) < first));
    await turn().getByText(t("playground.answer")).waitFor();
    await countdown().waitFor({ state: "detached" });
    desks.noSurprises(refusedChat);
  });

  async function askUntilRefused() {
    const answer = () => turn().getByText(t("playground.answer"));
    for (let n = 1; n <= 8; n += 1) {
      await ask(`question ${n}`);
      await answer().or(countdown()).first().waitFor({ state: "attached" });
      if (await countdown().isVisible()) return;
      await caller.locator("[role=log][aria-busy=false]").waitFor();
    }
    assert.fail("eight calls in a row were let through");
  }

  const secondsLeft = async () => Number(/^P0DT0H0M(\d+)S$/.exec(await countdown().getAttribute("datetime"))[1]);

  test("the operator switches the plan and it bites at once, saying what ran out", async () => {
    await desks.openUser(user);
    await desks.change(t("user.switchPlan"), t("user.switchPlan"), (form) => form.getByLabel(t("field.plan_id"), { exact: true }).selectOption("pair"));
    await desks.said(t("user.switched", { user, plan: "pair" }));
    await ask("one more");
    const refusal = turn().getByRole("alert");
    await refusal.waitFor();
    assert.ok((await refusal.textContent()).includes(t("playground.ranOut.limit", { policy: t("policy.daily"), limit: 2 })));
    assert.match(await countdown().getAttribute("datetime"), /^P0DT\d+H\d+M\d+S$/);
    await turn().getByText(t("playground.upgrade.limit", { plan: "Free", policy: t("policy.daily"), limit: 10 })).waitFor();
    await desks.picture(caller, "me-spent");
    desks.noSurprises(refusedChat);
  });

  test("the user queues the call, and the operator takes another one back", async () => {
    await button(turn(), t("playground.queue")).click();
    await turn().getByText(t("job.queued"), { exact: true }).waitFor();
    await ask("and another one");
    await button(turn(), t("playground.queue")).click();
    await turn().getByText(t("job.queued"), { exact: true }).waitFor();
    const second = await turn().locator("code").textContent();
    await desks.open(operator, "console", "/jobs");
    await desks.change(t("jobs.cancel.one", { id: second }), t("jobs.cancel"));
    await desks.said(t("jobs.cancelled"));
    await operator.getByRole("row", { name: second }).getByText(t("job.cancelled")).waitFor();
    await turn().getByText(t("job.cancelled")).waitFor();
    desks.noSurprises(refusedChat);
  });

  test("a day later the job is done, its result is read and the inbox tells of it", async () => {
    await desks.open(caller, "me", "/jobs");
    await halfAnHourPastMidnight();
    await caller.reload();
    const job = caller.locator("article.job", { hasText: t("job.succeeded") });
    await job.getByText(t("myJobs.result")).click();
    assert.equal(await job.locator(".result").textContent(), "You said: one more");
    await desks.open(caller, "me", "/inbox");
    await caller.getByRole("heading", { name: t("inbox.spent", { policy: t("policy.daily") }) }).waitFor();
    await caller.getByRole("heading", { name: t("notice.job.completed") }).first().waitFor();
    await desks.picture(caller, "me-inbox");
    await button(caller, t("inbox.readAll")).click();
    await caller.locator(".message-unread").first().waitFor({ state: "detached" });
    desks.noSurprises();
  });

  async function halfAnHourPastMidnight() {
    const offset = DAY - (Date.now() % DAY) + 30 * 60_000;
    await gateway.restart({ vars: { CLOCK_OFFSET_MS: String(offset) } });
    await gateway.scheduled();
    await eventually(async () => {
      const { body } = await gateway.call("/api/jobs", { key });
      assert.deepEqual(body.data.map((job) => job.status).sort(), ["cancelled", "succeeded"]);
    }, 30_000);
  }

  test("the gateway takes every change of a user that the operator can make", async () => {
    await desks.openUser(user);
    await desks.change(t("user.editProfile"), t("action.save"), async (form) => {
      await form.getByLabel(t("field.email")).fill("ann@example.org");
      await form.getByLabel(t("field.webhook_url")).fill("https://example.org/hook");
    });
    await operator.getByText("https://example.org/hook").waitFor();
    await desks.change(t("user.override"), t("action.save"), async (form) => {
      await form.getByLabel(t("user.override.rule", { rule: t("field.daily_limit") })).check();
      await form.getByLabel(t("field.daily_limit"), { exact: true }).fill("7");
      await form.getByLabel(t("user.override.rule", { rule: t("field.window") })).check();
      await form.getByLabel(t("field.window.kind")).selectOption("none");
    });
    await desks.said(t("user.saved", { user }));
    const { overrides, email } = (await gateway.admin(`/admin/users/${encodeURIComponent(user)}`)).body;
    assert.deepEqual({ overrides, email }, { overrides: { daily_limit: 7, window: null }, email: "ann@example.org" });
    await desks.change(t("user.grant"), t("user.grant"), (form) => form.getByLabel(t("user.grant.amount")).fill("5"));
    await desks.said(t("user.granted", { user }));
    assert.equal(await dailyLimit(), 12);
    await desks.change(t("user.reset"), t("user.reset.all"));
    await desks.said(t("user.wasReset", { user }));
    await desks.change(t("user.block"), t("user.block"));
    await desks.said(t("user.wasBlocked", { user }));
    await desks.change(t("user.unblock"), t("user.unblock"));
    await desks.said(t("user.unblocked", { user }));
    desks.noSurprises();
  });

  const quota = (credential) => gateway.call("/api/quota", { key: credential });
  const dailyLimit = async () => (await quota(key)).body.policies.find(({ name }) => name === "daily").limit;

  test("a rotated key ends at once, and whoever signed in with it is told", async () => {
    await desks.change(t("keys.rotate.one", { last4: key.slice(-4) }), t("keys.rotate"));
    const rotated = await desks.dialog().getByLabel(t("col.key"), { exact: true }).inputValue();
    await button(desks.dialog(), t("action.close")).click();
    assert.deepEqual([(await quota(key)).status, (await quota(rotated)).status], [401, 200]);
    await caller.reload();
    await caller.getByText(t("signIn.expired")).waitFor();
    await desks.signIn(caller, "me", "me.key", rotated);
    await caller.getByText(t("nav.playground")).waitFor();
    desks.noSurprises(/^401 GET \/api\//);
  });

  test("plans are made, changed and removed", async () => {
    await desks.open(operator, "console", "/new-plan");
    await operator.getByLabel(t("field.plan_id"), { exact: true }).fill("made");
    await operator.getByLabel(t("field.name"), { exact: true }).fill("Made");
    await desks.change(t("plan.create"), t("plan.create"));
    await desks.said(t("plan.created", { plan: "Made" }));
    await desks.open(operator, "console", "/plans/made");
    await operator.getByLabel(t("field.daily_limit"), { exact: true }).fill("50");
    await operator.getByLabel(t("field.window.kind")).selectOption("own");
    await desks.change(t("plan.review"), t("plan.save"), async (form) => {
      await form.getByText(t("effect.tighter")).waitFor();
      await desks.picture(operator, "console-plan-review");
    });
    await desks.said(t("plan.saved", { plan: "Made" }));
    const saved = async () => (await gateway.admin("/admin/plans/made")).body;
    assert.deepEqual([(await saved()).daily_limit, (await saved()).window], [50, { max_requests: 500, minutes: 300 }]);
    await operator.getByLabel(t("field.window.kind")).selectOption("default");
    await desks.change(t("plan.review"), t("plan.save"));
    await eventually(async () => assert.ok(!("window" in (await saved()))));
    await operator.getByText(t("plan.unchanged")).waitFor();
    await desks.change(t("plan.delete"), t("plan.delete"));
    await desks.said(t("plan.deleted", { plan: "made" }));
    desks.noSurprises();
  });

  test("models and routes are made, changed and removed", async () => {
    const [model, path] = ["@cf/some/model", "/reports"];
    await desks.open(operator, "console", "/routing");
    await desks.change(t("models.new"), t("action.save"), async (form) => {
      await form.getByLabel(t("col.model"), { exact: true }).fill(model);
      await form.getByLabel(t("field.upstream"), { exact: true }).selectOption("mock");
    });
    await desks.change(t("action.edit.one", { name: model }), t("action.save"), (form) => form.getByLabel(t("field.aliases")).fill("some-alias"));
    await operator.getByText("some-alias").waitFor();
    await desks.change(t("routes.new"), t("action.save"), async (form) => {
      await form.getByLabel(t("field.path_prefix"), { exact: true }).fill(path);
      await form.getByLabel(t("field.upstream_url")).fill("https://example.org/reports");
      await form.getByLabel(t("field.methods")).fill("get, post");
      await form.getByLabel(t("col.endpoint"), { exact: true }).fill("export");
    });
    await desks.change(t("action.edit.one", { name: path }), t("action.save"), (form) => form.getByLabel(t("field.cost"), { exact: true }).fill("3"));
    await operator.getByRole("row", { name: path }).getByText("3", { exact: true }).waitFor();
    for (const name of [model, path]) {
      await desks.change(t("action.delete.one", { name }), t("action.delete"));
      await button(operator, t("action.delete.one", { name })).waitFor({ state: "detached" });
    }
    desks.noSurprises();
  });

  test("the user is deleted, and signing out forgets the token", async () => {
    await desks.openUser(user);
    await desks.change(t("user.delete"), t("user.delete"), (form) => form.getByLabel(t("user.delete.type")).fill(user));
    await operator.getByRole("heading", { level: 1, name: t("nav.users") }).waitFor();
    await button(operator, t("shell.signOut")).click();
    await operator.getByLabel(t("console.token")).waitFor();
    assert.equal(await operator.evaluate(() => sessionStorage.length), 0);
    // The page of the user who is gone may have asked once more.
    desks.noSurprises(/^40[14] GET \//);
  });
}
