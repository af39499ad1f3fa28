// `npm run bench -- --profile <row>`: where the time of a call goes, by V8's profiler, as tables.
import { mkdirSync, writeFileSync } from "node:fs";
import { inRoot } from "../../scripts/lib/paths.mjs";
import { profiled } from "./inspector.mjs";
import { median, turn } from "./measure.mjs";
import { number, table } from "./report.mjs";

/** How many functions are shown. */
const top = 30;

/** Calls a row as the bench does, then once more under the profiler; gives the tables as Markdown. */
export async function profile(scenario, upstream, { seconds }) {
  const { worker, id, name } = scenario;
  await turn(scenario, upstream, { seconds: 2 });
  const { cpu } = await turn(scenario, upstream, { seconds });
  let calls = 0;
  const recorded = await profiled(worker.inspector, worker.isolate, async () => {
    ({ calls } = await turn(scenario, upstream, { seconds: seconds * 2 }));
  });
  const path = inRoot("target", "bench-profiles", `${id}.cpuprofile`);
  mkdirSync(inRoot("target", "bench-profiles"), { recursive: true });
  writeFileSync(path, JSON.stringify(recorded));
  return tables({ name, calls, cpu, path, ...summed(recorded) });
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
    `${name}: ${number(calls)} calls under the profiler. Without it, a call takes ${number(cpu)} µs of the processor; ${number(all / calls)} µs of that are in the Worker's isolate, the account's object included. The rest is the runtime's own: connections, timers, stores, logs.`,
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
