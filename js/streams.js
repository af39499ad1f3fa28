// The steps that are taken once a chunk. In Rust each would be a closure, a promise and a turn of the task queue,
// which cost several times what the platform needs to pass a chunk on.

/** How a stream of a provider ended; src/gateway/stream.rs knows the same numbers. */
const COMPLETE = 0;
const BROKE = 1;
const TIMED_OUT = 2;
const STOPPED = 3;
const WRITE_FAILED = 4;
const ABORTED = 5;

/**
 * Reads a stream to its end or until `take(chunk)` gives something other than undefined, and resolves to how it
 * ended. The wait for a chunk may take `patience` ms.
 */
function drain(source, patience, signal, take) {
  return new Promise((resolve) => {
    const reader = source.getReader();
    let over = false;
    // Since when a chunk is waited for; 0: none is.
    let since = Date.now();
    let timer = setTimeout(look, patience);
    const leave = () => end(ABORTED);
    signal.addEventListener("abort", leave);

    function end(how) {
      if (over) return;
      over = true;
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
      if (how !== COMPLETE) reader.cancel().catch(() => {});
      resolve(how);
    }

    // One timer a stream, not one a chunk: when it rings, it looks how long the wait has really taken.
    function look() {
      const left = since === 0 ? patience : since + patience - Date.now();
      if (left <= 0) return end(TIMED_OUT);
      timer = setTimeout(look, left);
    }

    async function run() {
      for (;;) {
        since = Date.now();
        const { done, value } = await reader.read();
        since = 0;
        if (over) return;
        if (done) return end(COMPLETE);
        const taken = take(value);
        const how = taken === undefined || typeof taken === "number" ? taken : await taken;
        if (how !== undefined) return end(how);
      }
    }

    run().catch(() => end(BROKE));
  });
}

/**
 * Passes a stream on. `feed(chunk)` gives what the caller gets of it: bytes, undefined for nothing yet, or null for
 * nothing any more. Nothing is fed once the promise is resolved or the signal was aborted.
 */
export function pump(source, writer, patience, signal, feed) {
  return drain(source, patience, signal, (chunk) => {
    const out = feed(chunk);
    if (out === null) return STOPPED;
    return out && writer.write(out).then(() => undefined, () => WRITE_FAILED);
  });
}

/** The whole of a stream in one piece; a number, as above, where there is none. STOPPED: it is larger than `most`. */
export async function collect(source, patience, signal, most) {
  const chunks = [];
  let length = 0;
  const how = await drain(source, patience, signal, (chunk) => {
    chunks.push(chunk);
    length += chunk.byteLength;
    return length > most ? STOPPED : undefined;
  });
  if (how !== COMPLETE) return how;
  if (chunks.length === 1) return chunks[0];
  const all = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.byteLength;
  }
  return all;
}
