// What a process has used of the processor, as the kernel counts it: in hundredths of a second.
import { readFileSync } from "node:fs";

const tick = 10_000;

/** Microseconds of utime and stime of these processes so far. */
export function cpuMicros(pids) {
  return pids.reduce((sum, pid) => sum + ofOne(pid), 0);
}

function ofOne(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * tick;
}

/** Waits until these processes have nothing to do, so that what a call leaves for afterwards is counted too. */
export async function untilIdle(pids, { quiet = 250, patience = 4000 } = {}) {
  const deadline = Date.now() + patience;
  for (let before = -1; Date.now() < deadline; ) {
    const now = cpuMicros(pids);
    if (before >= 0 && now - before <= tick) return;
    before = now;
    await new Promise((resolve) => setTimeout(resolve, quiet));
  }
}
