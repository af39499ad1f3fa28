// The two ends of every measured call: a local provider, and callers who call it through the Worker. Both are Rust,
// so that they take little of the machine they share with the Worker.
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { once } from "node:events";
import { inRoot } from "../../scripts/lib/paths.mjs";
import { run } from "../../scripts/lib/run.mjs";
import { Stop } from "../../scripts/lib/say.mjs";

const target = inRoot("target", "bench-tools");
const program = (name) => `${target}/release/${name}`;
const scratch = inRoot("target", "bench-requests");

export async function buildTools() {
  await run("cargo", ["build", "--release", "--locked", "--manifest-path", inRoot("bench/tools/Cargo.toml"), "--target-dir", target], { show: false });
}

/** The provider: `{ url, port, pid, stop() }`. */
export async function startUpstream({ chunks, pauseMicros }) {
  const child = spawn(program("upstream"), ["--chunks", chunks, "--pause-us", pauseMicros].map(String), { stdio: ["ignore", "pipe", "inherit"] });
  const [port] = await once(createInterface(child.stdout), "line");
  return { url: `http://127.0.0.1:${port}`, port: Number(port), pid: child.pid, stop: () => child.kill() };
}

let serial = 0;

/** Writes messages and the order they are sent in to files that `call` can be given. */
export function script(messages, order = messages.map((_, index) => index)) {
  mkdirSync(scratch, { recursive: true });
  const name = `${scratch}/${serial++}`;
  const framed = messages.map((message) => {
    const bytes = Buffer.from(message);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bytes.length);
    return Buffer.concat([length, bytes]);
  });
  writeFileSync(`${name}.requests`, Buffer.concat(framed));
  writeFileSync(`${name}.order`, Buffer.from(Uint32Array.from(order).buffer));
  return { requests: `${name}.requests`, order: `${name}.order` };
}

/** Calls as a scenario says for some seconds or so many `calls`; every answer is checked. What the callers saw. */
export async function call(port, { name, script: { requests, order }, status, bodyHas, eventsPerCall }, { seconds = 600, calls, connections = 16 }) {
  const options = { port, requests, order, connections, seconds, status, "body-has": bodyHas, ...(calls && { calls }) };
  const args = Object.entries(options).flatMap(([key, value]) => [`--${key}`, String(value)]);
  const child = spawn(program("callers"), args, { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (bytes) => (output += bytes));
  await once(child, "close");
  const seen = JSON.parse(output);
  if (seen.wrong > 0 || seen.broken > 0) {
    throw new Stop(`${name}: of ${seen.calls} answers ${seen.wrong} were not a ${status} with ${bodyHas} and ${seen.broken} broke: ${JSON.stringify(seen.statuses)} ${seen.example}`);
  }
  if (seen.calls === 0) throw new Stop(`${name}: no answer came.`);
  if (eventsPerCall && seen.events / seen.calls !== eventsPerCall) throw new Stop(`${name}: ${seen.events / seen.calls} events a stream came in place of ${eventsPerCall}.`);
  return seen;
}
