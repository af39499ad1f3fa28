// A quiet point: nobody calls, nothing is out, and whatever was under way has come to its end.
import { setTimeout as pause } from "node:timers/promises";

/** How long what was under way has to end by itself: the end of a call that rode with a lost message is told after 6 s. */
const patience = 10_000;
/** What an isolate has refused by itself it hands over within this. */
const handingOver = 2_500;
/** By then every lease of a call has ended, and every lease of many. */
const leasesEnd = 6 * 60_000;
/** By then a job that the queue has lost is sent again. */
const jobsReturn = 17 * 60_000;

/**
 * Waits for a quiet point, and gives what stands in the ledger then: {days: by user id}. `unsettled` says how many calls
 * and leases were seen to begin and not to end: what they hold may be of a month that is over, and on no page.
 */
export async function quiet({ gateway, chaos, users, unsettled }) {
  await pause(handingOver);
  let since = Date.now();
  let before;
  let over = false;
  for (const began = since; Date.now() - began < 120_000; ) {
    const waits = await settle({ gateway, users });
    if (!over && unsettled() > 0) waits.push("something was not settled");
    const now = await snapshot({ gateway, users });
    if (waits.length === 0 && before === JSON.stringify(now)) return now;
    before = waits.length === 0 ? JSON.stringify(now) : undefined;
    if (waits.length > 0 && Date.now() - since > patience) {
      over = true;
      await chaos.wait(waits.some((what) => /job/.test(what)) ? jobsReturn : leasesEnd);
      since = Date.now();
    }
    await pause(700);
  }
  throw new Error(`still waiting: ${(await settle({ gateway, users })).join(", ")}`);
}

/** Lets everything that waits go on; gives what does. */
async function settle({ gateway, users }) {
  const waits = [];
  await gateway.scheduled();
  for (const user of users) {
    const { status, body } = await gateway.call("/api/quota", { key: user.key });
    if (status !== 200) waits.push(`the quota page of ${user.user_id} is ${status}`);
    else if (body.policies.some(({ reserved }) => reserved !== 0)) waits.push(`${user.user_id} holds something`);
    await gateway.account(user.user_id).runAlarm();
  }
  const count = (sql) => gateway.d1.prepare(sql).first("n");
  if (await count("SELECT COUNT(*) AS n FROM open_calls WHERE booked_at_ms IS NULL")) waits.push("a call is not booked");
  if (await count("SELECT COUNT(*) AS n FROM jobs WHERE status = 'running' OR (finished_at_ms IS NOT NULL AND closed = 0)")) waits.push("a job is under way");
  const drift = await gateway.admin("/admin/reconcile", { json: {} });
  if (drift.status !== 200 || drift.body.drifted !== 0) waits.push(`account and ledger differ: ${drift.text}`);
  return waits;
}

async function snapshot({ gateway, users }) {
  const days = {};
  for (const { user_id } of users) days[user_id] = await gateway.usageRows(user_id);
  const { results } = await gateway.d1.prepare("SELECT job_id, status FROM jobs ORDER BY job_id").all();
  return { days, jobs: results };
}
