// `npm run bench -- --profile <row>`: where the time of a call goes, by V8's profiler, as tables.
import { mkdirSync, writeFileSync } from "node:fs";
import { inRoot } from "../../scripts/lib/paths.mjs";
import { cpuMicros, untilIdle } from "./cpu.mjs";
import { median } from "./measure.mjs";
import { profiled } from "./inspector.mjs";
import { number, table } from "./report.mjs";
import { call } from "./tools.mjs";

/** How many functions are shown. */
const top = 30;

/** Calls a row as the bench does, under the profiler; gives the tables as Markdown. */
export async function profile(scenario, { seconds }) {
  const { worker } = scenario;
  await call(worker.port, scenario, { seconds: 2 });
  await untilIdle(worker.pids);
  const before = cpuMicros(worker.pids);
  let calls = 0;
  const recorded = await profiled(worker.inspector, worker.isolate, async () => {
    calls = (await call(worker.port, scenario, { seconds })).calls;
    await untilIdle(worker.pids);
  });
  const cpu = (cpuMicros(worker.pids) - before) / calls;
  const path = inRoot("target", "bench-profiles", `${scenario.id}.cpuprofile`);
  mkdirSync(inRoot("target", "bench-profiles"), { recursive: true });
  writeFileSync(path, JSON.stringify(recorded));
  return tables({ name: scenario.name, calls, cpu, path, ...summed(recorded) });
}

/** Microseconds by function: in itself, and with what it calls. */
export function summed({ nodes, samples, timeDeltas }) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  for (const node of nodes) for (const child of node.children ?? []) byId.get(child).parent = node;
  const [self, total, parts] = [new Map(), new Map(), new Map()];
  // No sample is taken while the isolate has nothing to do, so the gaps say nothing: every sample weighs the same.
  const micros = median(timeDeltas.slice(1));
  const add = (sums, key) => sums.set(key, (sums.get(key) ?? 0) + micros);
  for (const id of samples) {
    const node = byId.get(id);
    add(self, nameOf(node));
    add(parts, partOf(node));
    const stack = new Set();
    for (let at = node; at; at = at.parent) stack.add(nameOf(at));
    for (const name of stack) add(total, name);
  }
  return { self, total, parts };
}

/** A function's name without what the compiler adds to tell copies apart. */
function nameOf({ callFrame: { functionName, url } }) {
  const name = (functionName || "(anonymous)").replace(/::h[0-9a-f]{16}/g, "").replace(/\[[0-9a-f]{6,16}\]/g, "").replace(/(::\{\{closure\}\})+/g, "{…}");
  return url.startsWith("wasm") || functionName.startsWith("(") ? name : `${name} (${url.split("/").pop() || "JavaScript"})`;
}

/** Which part of the program a function belongs to: a crate, or a folder of `src/`, or the platform. */
function partOf({ callFrame: { functionName, url } }) {
  if (functionName.startsWith("(")) return functionName;
  if (!url.startsWith("wasm")) return url ? `JavaScript: ${url.split("/").pop()}` : "JavaScript of the platform";
  const own = /\bsluice(?:\[[0-9a-f]+\])?::(\w+)/.exec(functionName);
  const crate = /^[<&]*(?:mut )?(\w+)(?:\[[0-9a-f]+\])?::/.exec(functionName)?.[1];
  return own ? `src/${own[1]}` : `crate ${crate ?? "(none)"}`;
}

function tables({ name, calls, cpu, path, self, total, parts }) {
  const idle = self.get("(idle)") ?? 0;
  const all = [...self.values()].reduce((sum, micros) => sum + micros, 0) - idle;
  const rows = (sums, most) =>
    [...sums]
      .filter(([what]) => what !== "(idle)" && what !== "(root)")
      .sort(([, one], [, other]) => other - one)
      .slice(0, most)
      .map(([what, micros]) => [what.length > 90 ? `${what.slice(0, 89)}…` : what, number(micros / calls, 1), `${number((100 * micros) / all, 1)} %`]);
  return [
    `${name}: ${number(calls)} calls under the profiler, ${number(cpu)} µs of CPU a call, ${number(all / calls)} µs of them seen by V8`,
    "",
    "## By part",
    "",
    table(["", "µs a call", "share"], rows(parts, top)),
    "",
    "## By function, in itself",
    "",
    table(["", "µs a call", "share"], rows(self, top)),
    "",
    "## By function, with what it calls",
    "",
    table(["", "µs a call", "share"], rows(total, top)),
    "",
    `The whole profile, for any viewer of V8's profiles: ${path}`,
  ].join("\n");
}
