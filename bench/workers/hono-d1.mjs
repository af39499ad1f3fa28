// A daily limit as it is often written: one read and one write of D1 a call. (Two calls at once may both read
// the last free one.)
import { Hono } from "hono";
import { forward, hashed, keyOf, limited, today } from "./shared.mjs";

const app = new Hono();

app.use("/v1/*", async (c, next) => {
  const key = keyOf(c);
  if (!key) return c.json({ error: "unauthorized" }, 401);
  const user = await c.env.DB.prepare(
    "SELECT u.user_id, u.daily_limit, COALESCE(g.calls, 0) AS calls FROM users u LEFT JOIN usage g ON g.user_id = u.user_id AND g.day = ?2 WHERE u.key_hash = ?1",
  )
    .bind(await hashed(key), today())
    .first();
  if (!user) return c.json({ error: "unauthorized" }, 401);
  if (user.calls >= user.daily_limit) return c.json({ error: "daily limit reached" }, 429);
  await c.env.DB.prepare("INSERT INTO usage (user_id, day, calls) VALUES (?1, ?2, 1) ON CONFLICT DO UPDATE SET calls = calls + 1")
    .bind(user.user_id, today())
    .run();
  c.set("limit", user.daily_limit);
  c.set("used", user.calls + 1);
  await next();
});

app.all("/v1/*", async (c) => limited(await forward(c), c.get("limit"), c.get("used")));

export default app;
