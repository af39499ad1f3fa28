// Ending a program together with everything it started.
import { spawnSync } from "node:child_process";

/** A process, then all its descendants, as `ps` knows them now. */
export function family(pid) {
  const pairs = processes();
  const found = [pid];
  for (let i = 0; i < found.length; i++) found.push(...pairs.filter(([, parent]) => parent === found[i]).map(([child]) => child));
  return found;
}

/** Every running process of this machine as [pid, parent's pid]. */
function processes() {
  const table = spawnSync("ps", ["-A", "-o", "pid=,ppid=,stat="], { encoding: "utf8" }).stdout ?? "";
  const rows = table.trim().split("\n").map((line) => line.trim().split(/\s+/));
  return rows.filter(([, , state]) => !state?.startsWith("Z")).map(([pid, parent]) => [Number(pid), Number(parent)]);
}

/** Asks everything this process has started to end, and after `patience` ms makes it. */
export async function endChildren(patience = 4000) {
  const [, ...members] = family(process.pid);
  const children = processes().filter(([, parent]) => parent === process.pid);
  for (const [child] of children) signal(child, "SIGTERM");
  const deadline = Date.now() + patience;
  const running = () => processes().some(([pid]) => members.includes(pid));
  while (running() && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 100));
  for (const member of members) signal(member, "SIGKILL");
}

/**
 * Ctrl-C, `kill`, a closed terminal and the end of the npm that started us leave nothing running.
 * `onEnd` is told first, so that nobody takes the children's end for a failure.
 */
export function endWithoutTrace(onEnd) {
  let ending = false;
  const end = async () => {
    if (ending) return;
    ending = true;
    onEnd();
    await endChildren();
    process.exit(130);
  };
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(name, end);
  const parent = process.ppid;
  if (process.env.npm_lifecycle_event) setInterval(() => process.ppid !== parent && end(), 500).unref();
}

/** Sends a signal to a process that may be gone. */
export function signal(pid, name) {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended by itself in between.
  }
}
