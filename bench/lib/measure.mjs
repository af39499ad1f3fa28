// Rounds: in each one every scenario has its turn, so that whatever slows the machine down slows all of them.
import { cpuMicros, untilIdle } from "./cpu.mjs";
import { call } from "./tools.mjs";

/** One turn of a scenario: what a call took and what it cost, what it left for afterwards included. */
export async function turn(scenario, upstream, options) {
  const { pids, port } = scenario.worker;
  const before = { worker: cpuMicros(pids), upstream: cpuMicros([upstream.pid]) };
  const seen = await call(port, scenario, options);
  await untilIdle(pids);
  return {
    calls: seen.calls,
    events: seen.events,
    callsPerSecond: seen.calls / seen.seconds,
    p50: seen.p50_us,
    p99: seen.p99_us,
    firstByte: seen.first_byte_p50_us,
    cpu: (cpuMicros(pids) - before.worker) / seen.calls,
    upstreamCpu: (cpuMicros([upstream.pid]) - before.upstream) / seen.calls,
    callersCpu: seen.cpu_us / seen.calls,
  };
}

/** Rounds of all scenarios; each begins with another one. Gives the median of each number, by scenario id. */
export async function rounds(scenarios, upstream, { number, seconds, tell }) {
  const turns = Object.fromEntries(scenarios.map(({ id }) => [id, []]));
  for (let round = 0; round < number; round++) {
    for (const place of scenarios.keys()) {
      const scenario = scenarios[(place + round) % scenarios.length];
      turns[scenario.id].push(await turn(scenario, upstream, { seconds }));
    }
    tell(round + 1);
  }
  return Object.fromEntries(Object.entries(turns).map(([id, list]) => [id, summary(list)]));
}

function summary(turns) {
  const names = Object.keys(turns[0]);
  return Object.fromEntries([...names.map((name) => [name, median(turns.map((one) => one[name]))]), ["spread", spread(turns.map((one) => one.cpu))]]);
}

export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** How far the turns lie apart, as a share of their median. */
const spread = (numbers) => (Math.max(...numbers) - Math.min(...numbers)) / median(numbers);
