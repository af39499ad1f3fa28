// An Express service whose users are held to their plan by a Sluice gateway.
//   SLUICE_URL=http://localhost:8787 SLUICE_SERVICE_KEY=slc_live_… PORT=3002 npm start
import { SluiceClient } from "@sluice/client";
import { sluice } from "@sluice/client/express";
import express from "express";

const { SLUICE_URL: url = "http://localhost:8787", SLUICE_SERVICE_KEY: key = "", PORT = "3002" } = process.env;
const client = new SluiceClient({ url, key });
const app = express();

// Your own authentication comes first and says who calls; this example believes a header.
app.use("/export", sluice({ client, user: (req) => req.get("x-user"), endpoint: "export" }));

app.get("/export/:name", (req, res) => {
  res.json({ exported: req.params.name });
});

// Work whose tokens are known only afterwards reserves the most it may take and says what it took.
app.use("/summary", sluice({ client, user: (req) => req.get("x-user"), tokens: 200 }));
app.get("/summary", (req, res) => {
  res.locals.sluice.tokens = 42;
  res.json({ summary: "short" });
});

const server = app.listen(Number(PORT), () => console.log(`listening on http://localhost:${server.address().port}`));
