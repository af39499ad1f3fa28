// The same behaviour through both frameworks, on their real packages.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, beforeEach, describe, test } from "node:test";
import express from "express";
import { Hono } from "hono";
import { SluiceClient } from "@sluice/client";
import { sluice as forExpress } from "@sluice/client/express";
import { sluice as forHono } from "@sluice/client/hono";
import { addressOf, allowed, listen, refused, startFake, stop, until } from "./gateway.mjs";

let fake, client;
before(async () => {
  fake = await startFake();
  client = new SluiceClient({ url: fake.url, key: "k", timeoutMs: 300 });
});
after(() => fake.stop());
beforeEach(() => Object.assign(fake, { asked: [], answers: [], always: [200, allowed] }));

/** Each app: /ok, /used (7 tokens), /fails (throws), /slow (streams) behind the middleware. */
const apps = { Hono: honoApp, Express: expressApp };

async function honoApp() {
  const app = new Hono();
  app.onError((error, c) => c.text(error.message, 500));
  app.use("*", forHono({ client, user: (c) => c.req.header("x-user"), endpoint: "export", tokens: 10, outage: { pauseMs: 0, perMinute: 1 } }));
  app.get("/ok", (c) => c.text("ok"));
  app.get("/used", (c) => {
    c.get("sluice").tokens = 7;
    return c.text("used");
  });
  app.get("/fails", () => {
    throw new Error("broken");
  });
  app.get("/later", (c) => {
    const ticket = c.get("sluice");
    ticket.deferred = true;
    setTimeout(() => ticket.settle(3), 20);
    return c.text("later");
  });
  return { get: (path, headers) => app.request(path, { headers }), stop: () => {} };
}

async function expressApp() {
  const app = express();
  app.use(forExpress({ client, user: (req) => req.get("x-user"), endpoint: "export", tokens: 10, outage: { pauseMs: 0, perMinute: 1 } }));
  app.get("/ok", (req, res) => res.send("ok"));
  app.get("/used", (req, res) => {
    res.locals.sluice.tokens = 7;
    res.send("used");
  });
  app.get("/fails", () => {
    throw new Error("broken");
  });
  app.get("/later", (req, res) => {
    const ticket = res.locals.sluice;
    ticket.deferred = true;
    setTimeout(() => ticket.settle(3), 20);
    res.send("later");
  });
  // Express tells a handler of errors by its four parameters.
  app.use((error, req, res, next) => (res.headersSent ? next(error) : res.status(500).send(error.message)));
  const server = createServer(app);
  await listen(server);
  return { get: (path, headers) => fetch(addressOf(server) + path, { headers }), stop: () => stop(server) };
}

for (const [name, start] of Object.entries(apps)) {
  describe(name, () => {
    let app;
    before(async () => (app = await start()));
    after(() => app.stop());
    const get = (path, user = "u") => app.get(path, user ? { "x-user": user } : {});
    const ended = async () => {
      await until(() => fake.asked.length >= 2);
      return fake.asked.slice(1).map(({ question, body }) => [question, body.tokens]);
    };

    test("an allowed call has its answer, the limit headers, and is settled", async () => {
      const answer = await get("/ok");
      assert.deepEqual([answer.status, await answer.text()], [200, "ok"]);
      assert.equal(answer.headers.get("x-ratelimit-remaining"), "4");
      assert.deepEqual(await ended(), [["settle", undefined]]);
      const { user_id, endpoint, tokens } = fake.asked[0].body;
      assert.deepEqual([user_id, endpoint, tokens], ["u", "export", 10]);
    });

    test("a handler says what was used, at once or later", async () => {
      await (await get("/used")).text();
      assert.deepEqual(await ended(), [["settle", 7]]);
      fake.asked = [];
      await (await get("/later")).text();
      assert.deepEqual(await ended(), [["settle", 3]]);
    });

    test("a failure is given back", async () => {
      const answer = await get("/fails");
      assert.equal(answer.status, 500);
      assert.equal(answer.headers.get("x-ratelimit-remaining"), "4");
      assert.deepEqual(await ended(), [["release", undefined]]);
    });

    test("a refused call is the gateway's 429 and reaches no handler", async () => {
      fake.always = [200, refused];
      const answer = await get("/ok");
      assert.equal(answer.status, 429);
      assert.match(answer.headers.get("content-type"), /^application\/json/);
      assert.equal(answer.headers.get("retry-after"), "60");
      assert.deepEqual(await answer.json(), { error: refused.error, resetAt: refused.resetAt, request_id: "req_1" });
      assert.equal(fake.asked.length, 1);
    });

    test("nobody is a 401, without a question", async () => {
      assert.equal((await get("/ok", null)).status, 401);
      assert.equal(fake.asked.length, 0);
    });

    test("without a gateway the local cap holds", async () => {
      fake.always = [503, {}];
      const first = await get("/ok", "outage");
      assert.deepEqual([first.status, first.headers.get("x-sluice-decision")], [200, "open"]);
      const second = await get("/ok", "outage");
      assert.equal(second.status, 503);
      assert.match(second.headers.get("retry-after"), /^[1-9]\d*$/);
    });

    test("a wrong key is the app's error", async () => {
      fake.always = [401, { error: { message: "The API key is not valid.", code: "invalid_api_key" } }];
      assert.equal((await get("/ok")).status, 500);
    });
  });
}
