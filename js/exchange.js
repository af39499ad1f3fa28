// One call of a provider, from the request to the head of its answer, or to its end where it is wanted whole. In Rust
// every wait on the way would be a promise of its own with closures around it.
import { ABORTED, BROKE, STOPPED, TIMED_OUT, collect } from "./streams.js";
import { headersOfRequest, lines } from "./wire.js";

/** How much longer than its head, in ms, an answer may take: not as long as its call's reservation lasts. */
const MORE = 20_000;

/**
 * Sends `body` and resolves to `[status, head, body, waited]`, or to how it ended without an answer, in the numbers of
 * streams.js. `head` has the answer's headers, `waited` is the time to the head. The body of a good answer is read to
 * its end if it has no more than `most` bytes (STOPPED: it has more); of others it is the stream, and always where `most`
 * is 0. The head and every wait for a piece of the body may take `patience` ms, and both together MORE than that.
 */
export function exchange(url, head, body, signal, patience, most) {
  const began = Date.now();
  return new Promise((resolve) => {
    let timer = setTimeout(end, patience, TIMED_OUT);
    const leave = () => end(ABORTED);
    signal.addEventListener("abort", leave);

    function end(outcome) {
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
      resolve(outcome);
    }

    async function run() {
      const response = await fetch(url, { method: "POST", headers: headersOfRequest(head), body: body.slice(), redirect: "manual", signal });
      const answer = [response.status, lines(response.headers), response.body, Date.now() - began];
      if (most > 0 && response.ok) {
        answer[2] = await whole(response);
        if (typeof answer[2] === "number") return end(answer[2]);
      }
      end(answer);
    }

    async function whole(response) {
      const { headers } = response;
      clearTimeout(timer);
      // Of a length that is told, and not of what comes out of a compressed body, the platform may be asked at once.
      const length = headers.get("content-encoding") ? NaN : Number(headers.get("content-length") ?? NaN);
      if (length > most) return STOPPED;
      const until = began + patience + MORE;
      if (!(length >= 0)) return response.body ? collect(response.body, patience, signal, most, until) : new Uint8Array();
      timer = setTimeout(end, Math.min(patience, until - Date.now()), TIMED_OUT);
      return new Uint8Array(await response.arrayBuffer());
    }

    run().catch(() => end(signal.aborted ? ABORTED : BROKE));
  });
}
