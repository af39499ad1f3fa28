// The runtime's inspector: V8's own profiler, told when to begin and when to end.
import { once } from "node:events";
import { Stop } from "../../scripts/lib/say.mjs";

/** Microseconds between two looks at the stack: the looking takes the machine's time, too. */
const interval = 500;

/** Profiles a Worker's isolate, by its name in Miniflare, while `work` is done: what V8 calls a `.cpuprofile`. */
export async function profiled(inspector, name, work) {
  const targets = await (await fetch(`http://${inspector.host}/json`)).json();
  const target = targets.find(({ id }) => id === `core:user:${name}`);
  if (!target) throw new Error(`no isolate ${name} among ${targets.map(({ id }) => id)}`);
  const { send, close } = await session(`ws://${inspector.host}/${target.id}`);
  try {
    await send("Profiler.enable");
    await send("Profiler.setSamplingInterval", { interval });
    await send("Profiler.start");
    await work();
    return (await send("Profiler.stop")).profile;
  } finally {
    close();
  }
}

async function session(url) {
  if (!globalThis.WebSocket) throw new Stop("A profile needs Node.js 22 or newer; `npm run bench -- --profile …` finds the one that npm has installed.");
  const socket = new WebSocket(url);
  await once(socket, "open");
  const waiting = new Map();
  socket.addEventListener("message", ({ data }) => {
    const { id, result, error } = JSON.parse(data);
    const { resolve, reject } = waiting.get(id) ?? {};
    if (error) reject?.(new Error(`inspector: ${error.message}`));
    else resolve?.(result);
  });
  let serial = 0;
  const send = (method, params = {}) =>
    new Promise((resolve, reject) => {
      waiting.set(++serial, { resolve, reject });
      socket.send(JSON.stringify({ id: serial, method, params }));
    });
  return { send, close: () => socket.close() };
}
