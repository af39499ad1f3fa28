// The results as tables, for the terminal and for bench/RESULTS.md alike.
import { prices, read } from "../prices.mjs";
import { chunks } from "./scenarios.mjs";

/** A number as people write it. */
export const number = (value, digits = 0) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const ratio = (one, base, what) => (base ? `${number(one[what] / base[what], 2)}` : "");
const ms = (micros) => number(micros / 1000, 2);

/** A Markdown table whose columns line up in a terminal too. */
export function table(head, rows) {
  const all = [head, ...rows].map((row) => row.map(String));
  const widths = head.map((_, column) => Math.max(...all.map((row) => row[column].length)));
  const line = (row) => `| ${row.map((cell, column) => (column === 0 ? cell.padEnd(widths[column]) : cell.padStart(widths[column]))).join(" | ")} |`;
  const rule = `|${widths.map((width, column) => (column === 0 ? "-".repeat(width + 2) : `${"-".repeat(width + 1)}:`)).join("|")}|`;
  return [line(all[0]), rule, ...all.slice(1).map(line)].join("\n");
}

/** Everything that was found, as Markdown. */
export function report({ setting, measured, scenarios, ceiling, counted, size, goals }) {
  return [
    "# Results",
    "",
    `Written by \`${setting.command}\` on ${setting.date}. What the numbers mean: [docs/benchmarks.md](../docs/benchmarks.md).`,
    "",
    `Machine: ${setting.machine}. ${setting.runtime}. Commit ${setting.commit}. ${setting.rounds} rounds of ${setting.seconds} s for each row, in turn, ${setting.connections} connections; medians.`,
    "",
    "## Calls",
    "",
    calls(scenarios, measured),
    "",
    "`CPU` is utime + stime of the row's own workerd process; `×` is the ratio to the passthrough (streams: to the passthrough of the same stream). `spread` is how far the rounds' CPU lies apart.",
    "",
    "## Streams",
    "",
    streams(measured),
    "",
    "## Neither end is the bottleneck",
    "",
    ends(ceiling, measured),
    "",
    "## What 1,000 calls ask of the platform",
    "",
    operations(counted),
    "",
    "Counted at the bindings. `ms apart` is the shortest time between two publications of one user: each is one transaction of D1.",
    "",
    `Prices of ${read}, Workers Paid, beyond what is included:`,
    "",
    ...Object.entries(prices).map(([what, { says, page }]) => `- ${what}: ${says} (${page})`),
    "",
    "CPU time is left out: at $0.02 a million milliseconds, a millisecond a call is two cents a million calls.",
    "",
    "## The Worker",
    "",
    worker(size),
    "",
    "## Goals",
    "",
    table(["goal", "reached", ""], goals.map(({ goal, reached, passes }) => [goal, number(reached, 2), passes ? "pass" : "MISS"])),
    "",
  ].join("\n");
}

function calls(scenarios, measured) {
  const head = ["", "calls/s", "×", "CPU µs", "×", "spread", "p50 ms", "×", "p99 ms", "×"];
  const rows = scenarios.map(({ id, name, base }) => {
    const [one, than] = [measured[id], measured[base]];
    const against = (what) => ratio(one, than, what);
    return [name, number(one.callsPerSecond), against("callsPerSecond"), number(one.cpu), against("cpu"), `${number(one.spread * 100)} %`, ms(one.p50), against("p50"), ms(one.p99), against("p99")];
  });
  return table(head, rows);
}

function streams(measured) {
  const [base, one] = [measured["passthrough-stream"], measured.stream];
  const row = (name, value) => [name, ms(value.firstByte), number(value.cpu / chunks, 1)];
  return table(
    ["", "first byte ms (p50)", "CPU µs a chunk"],
    [row("passthrough", base), row("Sluice", one), ["added", ms(one.firstByte - base.firstByte), number((one.cpu - base.cpu) / chunks, 1)]],
  );
}

function ends(ceiling, measured) {
  const { passthrough } = measured;
  const rows = [
    ["callers and provider without a Worker between", number(ceiling.callsPerSecond), number(ceiling.callersCpu, 1), number(ceiling.upstreamCpu, 1)],
    ["the passthrough between them", number(passthrough.callsPerSecond), number(passthrough.callersCpu, 1), number(passthrough.upstreamCpu, 1)],
  ];
  const free = ceiling.callsPerSecond / passthrough.callsPerSecond;
  return `${table(["", "calls/s", "callers' CPU µs a call", "provider's CPU µs a call"], rows)}\n\nAlone they do ${number(free, 1)} times the passthrough's calls.`;
}

function operations(counted) {
  const kinds = Object.keys(prices).filter((what) => Object.values(counted).some(({ perThousand }) => perThousand[what] > 0));
  const short = (what) => what.replace("object", "DO").replace("milliseconds", "ms");
  const head = ["", "calls/s", ...kinds.map(short), "D1 transactions that write", "ms apart", "$ a million calls"];
  const rows = Object.values(counted).map(({ name, calls, seconds, perThousand, shortest, dollars }) => [
    name,
    number(calls / seconds),
    ...kinds.map((what) => number(perThousand[what] ?? 0)),
    number(perThousand["d1 writing transactions"] ?? 0),
    shortest === null ? "" : number(shortest),
    number(dollars, 2),
  ]);
  return table(head, rows);
}

function worker({ parts, gzipped, instantiationMs, compilationMs }) {
  const kb = (bytes) => `${number(bytes / 1000, 1)} KB`;
  const rows = parts.map((part) => [part.name, kb(part.raw), kb(part.gzipped)]);
  return `${table(["", "raw", "gzipped"], rows)}\n\n${kb(gzipped)} gzipped in all. Compiling the module: ${number(compilationMs, 1)} ms (V8 of Node.js); an instance of it: ${number(instantiationMs, 2)} ms (workerd).`;
}
