// A daily limit counted in KV, as it is often written to keep D1 out of the way: two reads and one write of KV
// a call, and the usage table brought up to date after the answer. (KV is eventually consistent and takes one
// write a second per key, so this one counts too little; locally it doesn't show.)
import { Hono } from "hono";
import { forward, hashed, keyOf, limited, today } from "./shared.mjs";

const app = new Hono();

app.use("/v1/*", async (c, next) => {
  const key = keyOf(c);
  if (!key) return c.json({ error: "unauthorized" }, 401);
  const user = await c.env.CACHE.get(`key:${await hashed(key)}`, "json");
  if (!user) return c.json({ error: "unauthorized" }, 401);
  const counter = `calls:${user.user_id}:${today()}`;
  const used = Number(await c.env.CACHE.get(counter)) + 1;
  if (used > user.daily_limit) return c.json({ error: "daily limit reached" }, 429);
  await c.env.CACHE.put(counter, String(used), { expirationTtl: 172_800 });
  c.executionCtx.waitUntil(
    c.env.DB.prepare("INSERT INTO usage (user_id, day, calls) VALUES (?1, ?2, 1) ON CONFLICT DO UPDATE SET calls = calls + 1")
      .bind(user.user_id, today())
      .run(),
  );
  c.set("limit", user.daily_limit);
  c.set("used", used);
  await next();
});

app.all("/v1/*", async (c) => limited(await forward(c), c.get("limit"), c.get("used")));

export default app;
