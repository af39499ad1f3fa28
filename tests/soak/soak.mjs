// `npm run soak`: minutes of random calls while everything that can fail does, and the books have to balance throughout.
//
//   npm run soak -- --minutes 10 --seed 7
//   npm run soak -- --leases                # with leases: one that a kill takes along is charged in full
//
// Users on six plans call with the official SDKs and raw HTTP and hang up; bindings fail, hang, lie and recover; the
// runtime is killed where it stands; the clock passes midnight and the end of the month; plans are edited; jobs wait for
// tomorrow. All the while there are quiet points: callers pause, what is under way ends, and what account, quota page and
// ledger have grown by since the last one has to be what the provider's log says of every single call (verdict.mjs).
// Half of the kills and steps of the clock come in the midst of calls, half while all is quiet. The status is 1 if
// anything differs.
import "../../scripts/lib/node-version.mjs";
import { setTimeout as pause } from "node:timers/promises";
import { startGateway } from "../harness/gateway.mjs";
import { callAs, Gate, markOf, plans, promptOf } from "./callers.mjs";
import { Chaos, inTime } from "./chaos.mjs";
import { startProvider } from "./provider.mjs";
import { quiet } from "./quiet.mjs";
import { random } from "./random.mjs";
import { Verdict } from "./verdict.mjs";
import { Witness } from "./witness.mjs";

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : Number(process.argv[at + 1]);
};
const minutes = option("minutes", 3);
const seed = option("seed", Date.now() % 1_000_000);
const leases = process.argv.includes("--leases");
const callersEach = 2;
const say = (text) => console.log(text);
const worker = ["soak/worker/entry.mjs", "harness/worker/entry.mjs", "harness/worker/faults.mjs", "harness/worker/ai.mjs", "harness/message.mjs"].map((name) => `tests/${name}`);

say(`soak: ${minutes} minutes, seed ${seed}, leases ${leases ? "on" : "off"}`);
let chaos;
const provider = await startProvider(random(seed + 1), () => chaos.now());
const gateway = await startGateway({ upstream: provider, entry: worker, vars: { UPSTREAM_TIMEOUT_MS: "5000", OUTAGE_LOCAL_PER_MINUTE: "20", LEASES: String(leases) } });
const users = [];
for (const plan of plans) {
  const made = await gateway.admin("/admin/plans", { json: { name: plan.plan_id, ...plan } });
  if (made.status !== 201) throw new Error(made.text);
  const user_id = await gateway.createUser({ user_id: `u-${plan.plan_id}`, plan_id: plan.plan_id });
  users.push({ user_id, plan_id: plan.plan_id, plan, key: await gateway.createKey(user_id) });
}
const rng = random(seed);
chaos = new Chaos({ gateway, rng, users, say });
const verdict = new Verdict({ gateway, provider, users, chaos, witness: new Witness(), leases, estimate: await estimate(users[0]), say });

const records = [];
const gate = new Gate();
await gate.close();
const callers = users.flatMap((user, i) =>
  Array.from({ length: callersEach }, (_, n) => callAs(user, { gateway, gate, rng: random(seed + 100 * i + n + 2), records })),
);
const point = () => inTime(quiet({ gateway, chaos, users, unsettled: () => verdict.unsettled() }));
let before = await point();
const until = Date.now() + minutes * 60_000;
for (let n = 1; Date.now() < until; n++) await round(n);
gate.end();
await Promise.all(callers);
await gateway.stop();
await provider.stop();
report();
process.exit(verdict.differences.length === 0 ? 0 : 1);

/** Calls and mishaps, an end of the runtime in the midst of them or afterwards, and the quiet points. */
async function round(n) {
  const inTheMidst = rng.chance(0.5);
  gate.open();
  await chaos.mishaps(rng.between(0, 4));
  await pause(rng.between(500, 3_000));
  if (inTheMidst) {
    await chaos.end();
    await pause(rng.between(1_000, 3_000));
  }
  await inTime(gate.close());
  await gateway.noFaults();
  await segment(`segment ${n}${inTheMidst ? ", an end in its midst" : ""}`);
  if (inTheMidst) return;
  await chaos.end();
  await segment(`segment ${n}, an end at rest`);
}

/** Waits for a quiet point and judges all calls since the one before. */
async function segment(name) {
  const after = await point();
  await verdict.judge(name, records.slice(segment.judged ?? 0), before, after);
  segment.judged = records.length;
  before = after;
}

/** What the gateway takes a prompt of the soak for. */
async function estimate({ key }) {
  const messages = [{ role: "user", content: promptOf(markOf(0)) }];
  const { body } = await gateway.call("/v1/messages/count_tokens", { key, json: { model: "m-small", messages } });
  return body.input_tokens;
}

function report() {
  const number = (result) => records.filter((record) => record.result === result).length;
  const streams = records.filter(({ kind }) => /Stream$/.test(kind)).length;
  const { figures, differences } = verdict;
  const share = (part, whole) => `${((100 * part) / Math.max(whole, 1)).toFixed(2)} %`;
  for (const text of differences) say(`DIFFERENCE ${text}`);
  say(`seed ${seed}, leases ${leases ? "on" : "off"}`);
  say(`calls ${records.length}: ok ${number("ok")}, refused ${number("refused")}, failed ${number("failed")}, queued ${number("queued")}, hang-ups ${number("left")}, broken ${number("broken")}; streams ${streams}, jobs ${chaos.jobs.size}`);
  say(`kills ${chaos.counts.kills}, clock steps ${chaos.counts.clocks}, faults ${chaos.counts.faults}, accounts moved ${chaos.counts.moved}, plans edited ${chaos.counts.edits}, leases lost ${figures.lost}`);
  say(`charged ${figures.calls} calls and ${figures.tokens} tokens in ${figures.exact + figures.open} segments: ${figures.exact} exact, ${figures.open} with open calls`);
  say(`calls exact by the provider's log ${figures.byLog}, by their settlement within it ${figures.bySettlement}; open ${figures.openCalls} (${share(figures.openCalls, records.length)}) by ${figures.openTokens} tokens (${share(figures.openTokens, figures.tokens)})`);
  say(`counted ${figures.refused} refusals and ${figures.queued} jobs; of ${figures.openCounts} calls (${share(figures.openCounts, records.length)}) it is open whether they were`);
  say(`differences ${differences.length}, overshoot ${figures.overshoot}`);
}
