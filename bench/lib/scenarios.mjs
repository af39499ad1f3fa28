// What is measured: who calls which Worker, and what every answer has to be.
import { chat, chatStream, consume, zipf } from "./requests.mjs";
import { script } from "./tools.mjs";
import { honoUser, sluiceUsers, startPlain, startSluice } from "./workers.mjs";

/** Users of the crowd. */
export const crowdSize = 1000;

/** A stream as its callers see it: 200 pieces, the end of the answer, `[DONE]`. */
export const chunks = 200;
const eventsPerCall = chunks + 2;

const whole = { status: 200, bodyHas: "chatcmpl-bench" };
const stream = { status: 200, bodyHas: "[DONE]", eventsPerCall };
const limited = { status: 429, bodyHas: "insufficient_quota" };
const decided = { status: 200, bodyHas: '"allowed":true' };

/**
 * Starts every Worker and gives the scenarios. `base` is what a scenario is compared with; `counts` says of which ones
 * the operations are counted.
 */
export async function prepare({ upstream, counted = false }) {
  const start = async (name, vars) => ({ name, ...(await (name === "sluice" ? startSluice : startPlain)({ name, upstream, counted, vars })) });
  const passthrough = counted ? null : await start("passthrough");
  const [honoD1, honoKv, sluice] = [await start("hono-d1"), await start("hono-kv"), await start("sluice")];
  const hopping = counted ? null : await start("sluice", { LEASES: "false" });
  const asking = hopping && (await sluiceUsers(hopping, 1)).admitted;
  const [d1Key, kvKey, users] = [await honoUser(honoD1), await honoUser(honoKv), await sluiceUsers(sluice, crowdSize)];
  const crowd = users.crowd.map(({ key }) => chat(key));
  const scenarios = [
    passthrough && { id: "passthrough", name: "passthrough", worker: passthrough, script: script([chat("any")]), ...whole },
    { id: "hono-d1", name: "Hono limiter, D1 read and write", base: "passthrough", worker: honoD1, script: script([chat(d1Key)]), ...whole },
    { id: "hono-kv", name: "Hono limiter, KV get and put, D1 after", base: "passthrough", worker: honoKv, script: script([chat(kvKey)]), ...whole },
    { id: "admitted", name: "Sluice, admitted, one user", base: "passthrough", worker: sluice, script: script([chat(users.admitted)]), ...whole },
    hopping && { id: "hopping", name: "Sluice, admitted, one user, without leases", base: "passthrough", worker: hopping, script: script([chat(asking)]), ...whole },
    { id: "crowd", name: `Sluice, admitted, ${crowdSize} users (Zipf)`, base: "passthrough", worker: sluice, script: script(crowd, zipf(crowdSize, 65_536)), ...whole },
    counted && { id: "sparse", name: `Sluice, admitted, ${crowdSize} users in turn`, base: "passthrough", worker: sluice, script: script(crowd), ...whole },
    { id: "refused", name: "Sluice, refused (daily quota used up)", base: "passthrough", worker: sluice, script: script([chat(users.refused)]), ...limited },
    { id: "consume", name: `Sluice, POST /api/limits/consume, ${crowdSize} users in turn`, base: "passthrough", worker: sluice, script: script(users.crowd.map(({ user_id }) => consume(users.service, user_id))), ...decided },
    passthrough && { id: "passthrough-stream", name: `passthrough, ${chunks} chunks streamed`, worker: passthrough, script: script([chatStream("any")]), ...stream },
    { id: "stream", name: `Sluice, ${chunks} chunks streamed`, base: "passthrough-stream", worker: sluice, script: script([chatStream(users.streamed)]), ...stream },
  ];
  await spend(sluice, users.refused);
  const workers = [passthrough, honoD1, honoKv, sluice, hopping].filter(Boolean);
  return { scenarios: scenarios.filter(Boolean), workers, stop: () => Promise.all(workers.map((worker) => worker.stop())) };
}

/** The one call a day that the user who is refused has. */
async function spend({ gateway }, key) {
  const { status, text } = await gateway.call("/v1/chat/completions", { key, json: { model: "bench", messages: [{ role: "user", content: "hi" }], max_tokens: 5 } });
  if (status !== 200) throw new Error(`the first call of the day: ${status} ${text}`);
}
