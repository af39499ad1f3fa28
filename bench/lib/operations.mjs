// What a call asks of the platform, counted at the bindings, and what that costs by the price list.
import { setTimeout as pause } from "node:timers/promises";
import { perMillion } from "../prices.mjs";
import { countedRows, prepare } from "./scenarios.mjs";
import { call } from "./tools.mjs";

/** What a user's account does after the last call (publishing, its alarm) is over by then. */
const afterwards = 3500;

/** Counts by scenario id: operations and dollars. */
export async function operations(upstream) {
  const { scenarios, workers, stop } = await prepare(countedRows, { upstream, counted: true });
  try {
    const counted = {};
    for (const worker of workers) await warm(worker, scenarios.filter((one) => one.worker === worker));
    await Promise.all(workers.map(async (worker) => {
      for (const scenario of scenarios.filter((one) => one.worker === worker)) counted[scenario.id] = await count(scenario);
    }));
    return counted;
  } finally {
    await stop();
  }
}

/** What is done once an isolate, a user or a day is no part of what a call costs. */
async function warm(worker, scenarios) {
  for (const scenario of scenarios) await call(worker.port, scenario, { calls: warmUp(scenario) });
  await pause(worker.name === "sluice" ? afterwards : 200);
  await worker.counts();
}

const warmUp = ({ id }) => ({ sparse: 1000, stream: 16 })[id] ?? 100;

/** Streams take long, and count no more than other calls do. */
const callsOf = ({ id }) => (id === "stream" ? 100 : 1000);

async function count(scenario) {
  const { worker, name } = scenario;
  const seen = await call(worker.port, scenario, { calls: callsOf(scenario) });
  if (worker.name === "sluice") await pause(afterwards);
  const { "shortest ms between publications": shortest, ...counts } = await worker.counts();
  const per = (times) => Object.fromEntries(Object.entries(counts).map(([what, number]) => [what, (number * times) / seen.calls]));
  return { name, calls: seen.calls, seconds: seen.seconds, counts, shortest, perThousand: per(1000), dollars: perMillion(per(1)) };
}
