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

/** The Workers, and how each is started and peopled: what it gives back is what its rows are made from. */
const starters = {
  passthrough: { start: startPlain },
  bare: { start: startPlain },
  "hono-d1": { start: startPlain, people: honoUser },
  "hono-kv": { start: startPlain, people: honoUser },
  sluice: { start: startSluice, people: (worker) => sluiceUsers(worker, crowdSize) },
  logging: { start: (options) => startSluice({ ...options, vars: { LOG_CALLS: "true" } }), people: (worker) => sluiceUsers(worker, 1) },
  /** Each call asks the account. */
  hopping: { start: (options) => startSluice({ ...options, vars: { LEASES: "false" } }), people: (worker) => sluiceUsers(worker, 1) },
};

/** Every row: which Worker it calls, what it is compared with, and its messages. */
const rows = [
  { id: "passthrough", name: "passthrough", on: "passthrough", messages: () => [chat("any")], ...whole },
  { id: "bare", name: "bare gateway in JavaScript, decides nothing", base: "passthrough", on: "bare", messages: () => [chat("any")], ...whole },
  { id: "hono-d1", name: "Hono limiter, D1 read and write", base: "passthrough", on: "hono-d1", messages: (key) => [chat(key)], ...whole },
  { id: "hono-kv", name: "Hono limiter, KV get and put, D1 after", base: "passthrough", on: "hono-kv", messages: (key) => [chat(key)], ...whole },
  { id: "admitted", name: "Sluice, admitted, one user", base: "passthrough", on: "sluice", messages: ({ admitted }) => [chat(admitted)], ...whole },
  { id: "hopping", name: "Sluice, admitted, one user, without leases", base: "passthrough", on: "hopping", messages: ({ admitted }) => [chat(admitted)], ...whole },
  { id: "logged", name: "Sluice, admitted, one user, a line in the log each", base: "passthrough", on: "logging", messages: ({ admitted }) => [chat(admitted)], ...whole },
  { id: "crowd", name: `Sluice, admitted, ${crowdSize} users (Zipf)`, base: "passthrough", on: "sluice", messages: ({ crowd }) => crowd.map(({ key }) => chat(key)), order: () => zipf(crowdSize, 65_536), ...whole },
  { id: "sparse", name: `Sluice, admitted, ${crowdSize} users in turn`, base: "passthrough", on: "sluice", messages: ({ crowd }) => crowd.map(({ key }) => chat(key)), ...whole },
  { id: "refused", name: "Sluice, refused (daily quota used up)", base: "passthrough", on: "sluice", messages: ({ refused }) => [chat(refused)], before: ({ refused }, worker) => spend(worker, refused), ...limited },
  { id: "consume", name: `Sluice, POST /api/limits/consume, ${crowdSize} users in turn`, base: "passthrough", on: "sluice", messages: ({ crowd, service }) => crowd.map(({ user_id }) => consume(service, user_id)), ...decided },
  { id: "passthrough-stream", name: `passthrough, ${chunks} chunks streamed`, on: "passthrough", messages: () => [chatStream("any")], ...stream },
  { id: "bare-stream", name: `bare gateway in JavaScript, ${chunks} chunks streamed`, base: "passthrough-stream", on: "bare", messages: () => [chatStream("any")], ...stream },
  { id: "stream", name: `Sluice, ${chunks} chunks streamed`, base: "passthrough-stream", on: "sluice", messages: ({ streamed }) => [chatStream(streamed)], ...stream },
];

/** The names of all rows, as the command line takes them. */
export const rowIds = rows.map(({ id }) => id);

/** The rows whose speed is measured: a crowd in turn only shows in what is counted. */
export const measuredRows = rowIds.filter((id) => id !== "sparse");

/** The rows whose operations are counted: the passthrough has none. */
export const countedRows = rowIds.filter((id) => !["passthrough", "passthrough-stream", "bare", "bare-stream", "hopping", "logged"].includes(id));

/** Starts the Workers that these rows call, and gives the rows; `options` are those of the Workers. */
export async function prepare(ids, options) {
  const chosen = rows.filter(({ id }) => ids.includes(id));
  const [workers, people] = [{}, {}];
  for (const name of new Set(chosen.map(({ on }) => on))) {
    const { start, people: settle } = starters[name];
    workers[name] = { name, ...(await start({ name, ...options })) };
    people[name] = await settle?.(workers[name]);
  }
  const scenarios = [];
  for (const { on, messages, order, before, ...row } of chosen) {
    await before?.(people[on], workers[on]);
    scenarios.push({ ...row, worker: workers[on], script: script(messages(people[on] ?? {}), order?.()) });
  }
  return { scenarios, workers: Object.values(workers), stop: () => Promise.all(Object.values(workers).map((worker) => worker.stop())) };
}

/** The one call a day that the user who is refused has. */
async function spend({ gateway }, key) {
  const { status, text } = await gateway.call("/v1/chat/completions", { key, json: { model: "bench", messages: [{ role: "user", content: "hi" }], max_tokens: 5 } });
  if (status !== 200) throw new Error(`the first call of the day: ${status} ${text}`);
}
