// Compiled, never run: the middleware fit the real frameworks' types.
import express from "express";
import { Hono } from "hono";
import { SluiceClient } from "@sluice/client";
import { sluice as forExpress } from "@sluice/client/express";
import { sluice as forHono } from "@sluice/client/hono";

const client = new SluiceClient({ url: "http://localhost", key: "" });

const hono = new Hono<{ Bindings: { NAME: string } }>();
hono.use("*", forHono({ client, user: (c) => c.req.header("x-user"), cost: 2, tokens: (c) => Number(c.req.query("n")) }));
hono.get("/", (c) => {
  c.get("sluice").tokens = 3;
  return c.text("");
});

const app = express();
app.use("/a", forExpress({ client, user: (req) => req.get("x-user"), endpoint: "export" }));
app.get("/a", (_req, res) => {
  res.locals.sluice.tokens = 3;
  res.end();
});
