// What the gateway is meant to reach. A goal that is missed is said so and fails nothing.
import { chunks } from "./scenarios.mjs";

/** Every goal as { goal, reached, passes }. */
export function goals({ measured, counted, size }) {
  const { passthrough, admitted, hopping, refused, stream } = measured;
  const hono = measured["hono-d1"];
  const speed = (one, other = passthrough) => one.callsPerSecond / other.callsPerSecond;
  const cpu = (one, other = passthrough) => one.cpu / other.cpu;
  return [
    atLeast("admitted: calls/s of the passthrough's", 0.7, speed(admitted)),
    atMost("admitted: CPU of the passthrough's", 1.5, cpu(admitted)),
    atLeast("admitted without leases: calls/s of the passthrough's", 0.35, speed(hopping)),
    atMost("admitted without leases: CPU of the passthrough's", 2.6, cpu(hopping)),
    atLeast("refused: calls/s of the passthrough's", 2, speed(refused)),
    atLeast("admitted: calls/s of the Hono limiter's on D1", 6, speed(admitted, hono)),
    atMost("admitted: CPU of the Hono limiter's on D1", 0.2, cpu(admitted, hono)),
    atMost(`a stream of ${chunks} chunks: CPU of the passthrough's`, 1.25, cpu(stream, measured["passthrough-stream"])),
    atMost("the Worker gzipped, in KB", 1000, size.gzipped / 1000),
    atLeast("between two D1 transactions that write, for one user under load, in ms", 1000, shortest(counted)),
    atMost("D1 rows that a publication of one user under load writes", 2, counted.admitted.counts["d1 rows written"] / counted.admitted.counts.publications),
  ];
}

/** Of all rows, the two publications of one user that were closest to each other; each is one transaction. */
const shortest = (counted) => Math.min(...Object.values(counted).map((row) => row.shortest ?? Infinity));

const atLeast = (goal, wanted, reached) => ({ goal: `${goal} ≥ ${wanted}`, reached, passes: reached >= wanted });
const atMost = (goal, wanted, reached) => ({ goal: `${goal} ≤ ${wanted}`, reached, passes: reached <= wanted });
