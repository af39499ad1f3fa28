// `npm run soak`: minutes of random calls while everything that can fail does, and then the books have to balance.
//
//   npm run soak -- --minutes 10 --seed 7
//   npm run soak -- --leases                # a lost lease is charged in full, so what was charged has a wider bound
//
// Users on six plans call with the official SDKs and raw HTTP and hang up; bindings fail, hang, lie and recover; the
// runtime is killed where it stands; the clock passes midnight and the end of the month; plans are edited; jobs wait
// for tomorrow. When all is quiet, account, quota page, ledger and, summed by user, the provider's own log have to
// agree: exactly where nothing interfered and within the documented bounds where something did. The status is 1 if they don't.
import "../../scripts/lib/node-version.mjs";
import { setTimeout as pause } from "node:timers/promises";
import { startGateway } from "../harness/gateway.mjs";
import { callAs, plans } from "./callers.mjs";
import { Chaos, inTime } from "./chaos.mjs";
import { startProvider } from "./provider.mjs";
import { random } from "./random.mjs";
import { judge, quiesce } from "./verdict.mjs";

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : Number(process.argv[at + 1]);
};
const minutes = option("minutes", 3);
const seed = option("seed", Date.now() % 1_000_000);
const leases = process.argv.includes("--leases");
const callersEach = 2;
const say = (text) => console.log(text);

say(`soak: ${minutes} minutes, seed ${seed}, leases ${leases ? "on" : "off"}`);
const provider = await startProvider(random(seed + 1));
const gateway = await startGateway({ upstream: provider, vars: { UPSTREAM_TIMEOUT_MS: "5000", OUTAGE_LOCAL_PER_MINUTE: "20", LEASES: String(leases) } });
const users = [];
for (const plan of plans) {
  const made = await gateway.admin("/admin/plans", { json: { name: plan.plan_id, ...plan } });
  if (made.status !== 201) throw new Error(made.text);
  const user_id = await gateway.createUser({ user_id: `u-${plan.plan_id}`, plan_id: plan.plan_id });
  users.push({ user_id, plan_id: plan.plan_id, plan, key: await gateway.createKey(user_id) });
}

const records = [];
const chaos = new Chaos({ gateway, rng: random(seed), users, say });
const until = Date.now() + minutes * 60_000;
const running = () => Date.now() < until;
const callers = users.flatMap((user, i) =>
  Array.from({ length: callersEach }, (_, n) => callAs(user, { gateway, rng: random(seed + 100 * i + n + 2), records, running })),
);
await Promise.all([...callers, chaos.rage(running)]);
await gateway.noFaults();
say(`${records.length} calls; now it is quiet`);
await pause(10_000);
await inTime(quiesce({ gateway, chaos, users }));

const limits = ({ plan }) => ({ daily: plan.daily_limit, monthly: plan.monthly_token_limit });
const { differences, figures } = await judge({ gateway, provider, records, users, chaos, limits, leases });
await gateway.stop();
await provider.stop();

const number = (result) => records.filter((record) => record.result === result).length;
const streams = records.filter(({ kind }) => /Stream$/.test(kind)).length;
for (const text of differences) say(`DIFFERENCE ${text}`);
say(`seed ${seed}`);
say(`calls ${records.length}, ok ${number("ok")}, refused ${number("refused")}, failed ${number("failed")}, queued ${number("queued")} (jobs ${figures.jobs}), streams ${streams}, hang-ups ${number("left")}, broken ${number("broken")}`);
say(`faults ${chaos.counts.faults}, kills ${chaos.counts.kills}, restarts with another clock ${chaos.counts.restarts}, accounts moved ${chaos.counts.moved}, plans edited ${chaos.counts.edits}`);
say(`charged ${figures.charged} calls and ${figures.tokens} tokens; ${figures.exact} calls exact, ${figures.bounded} within bounds (${figures.openCalls} calls and ${figures.openTokens} tokens open)`);
say(`differences ${differences.length}`);
process.exit(differences.length === 0 ? 0 : 1);
