// A Hono service whose users are held to their plan by a Sluice gateway.
//   SLUICE_URL=http://localhost:8787 SLUICE_SERVICE_KEY=slc_live_… PORT=3001 npm start
import { serve } from "@hono/node-server";
import { SluiceClient } from "@sluice/client";
import { sluice } from "@sluice/client/hono";
import { Hono } from "hono";

const { SLUICE_URL: url = "http://localhost:8787", SLUICE_SERVICE_KEY: key = "", PORT = "3001" } = process.env;
const client = new SluiceClient({ url, key });
const app = new Hono();

// Your own authentication comes first and says who calls; this example believes a header.
app.use("/export/*", sluice({ client, user: (c) => c.req.header("x-user"), endpoint: "export" }));

app.get("/export/:name", (c) => c.json({ exported: c.req.param("name") }));

// Work whose tokens are known only afterwards reserves the most it may take and says what it took.
app.use("/summary", sluice({ client, user: (c) => c.req.header("x-user"), tokens: 200 }));
app.get("/summary", (c) => {
  c.get("sluice").tokens = 42;
  return c.json({ summary: "short" });
});

serve({ fetch: app.fetch, port: Number(PORT) }, ({ port }) => console.log(`listening on http://localhost:${port}`));
