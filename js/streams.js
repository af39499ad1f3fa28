// The steps that are taken once a chunk. In Rust each would be a closure, a promise and a turn of the task queue,
// which cost several times what the platform needs to pass a chunk on.

/** How a stream of a provider ended; src/gateway/stream.rs knows the same numbers. */
const COMPLETE = 0;
export const BROKE = 1;
export const TIMED_OUT = 2;
export const STOPPED = 3;
const WRITE_FAILED = 4;
export const ABORTED = 5;

/** How often, in ms, whoever passes a stream on hears that it is still under way. */
const PULSE = 30_000;

/**
 * Reads to the end or until `take(chunk)` gives something other than undefined, and resolves to how it ended. The wait
 * for a chunk may take `patience` ms, and all of it until `until`. `pulse` is called now and then.
 */
function drain(reader, patience, signal, take, { until = Infinity, pulse } = {}) {
  return new Promise((resolve) => {
    let over = false;
    // Since when a chunk is waited for; 0: none is.
    let since = Date.now();
    let timer = setTimeout(look, Math.min(patience, until - since, PULSE));
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
      const now = Date.now();
      const left = Math.min(since === 0 ? patience : since + patience - now, until - now);
      if (left <= 0) return end(TIMED_OUT);
      pulse?.();
      timer = setTimeout(look, Math.min(left, PULSE));
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
 * nothing any more. Now and then it is fed nothing, also while the provider or the caller is waited for. Nothing is fed
 * once the promise is resolved or the signal was aborted.
 */
export function pump(source, writer, patience, signal, feed) {
  const inlet = inletOf(source);
  const pass = (chunk) => {
    const out = feed(chunk);
    if (out === null) return STOPPED;
    const written = out && writer.write(out).then(() => undefined, () => WRITE_FAILED);
    return inlet.rest?.(chunk, written) ?? written;
  };
  return drain(inlet, patience, signal, pass, { pulse: () => void feed(new Uint8Array()) });
}

/** The platform's own streams can be read into a buffer; those made of JavaScript cannot, and gather nothing. */
function inletOf(source) {
  try {
    return new Inlet(source, source.getReader({ mode: "byob" }));
  } catch {
    return source.getReader();
  }
}

/** A chunk that was waited for no longer than this many ms came fast. */
const HASTE = 5;
/** So many of them in a row make a fast stream. */
const RUN = 6;
/** How many ms of a fast stream are passed on together. */
const BEAT = 24;
/** How many bytes are taken at once at the most. */
const MOST = 16 << 10;

/**
 * The end of a stream that is read from. Waking JavaScript costs several times what the platform needs to pass a chunk
 * on; so when chunks come fast, the platform gathers them and they are taken together, a beat apart. A chunk that is
 * waited for is never held back.
 */
class Inlet {
  #source;
  #reader;
  #buffer = new ArrayBuffer(MOST);
  /** Since when a chunk is waited for. */
  #since = 0;
  /** How many chunks in a row came fast. */
  #run = 0;
  /** What gathers; undefined before it is worth it, null once the caller was too slow for it. */
  #gatherer;

  constructor(source, reader) {
    this.#source = source;
    this.#reader = reader;
  }

  read() {
    this.#since = Date.now();
    return this.#reader.read(new Uint8Array(this.#buffer));
  }

  async cancel() {
    await Promise.all([this.#reader.cancel(), this.#gatherer?.cancel()]);
  }

  /** What to wait for before the next chunk is read; `written` is when the caller has this one. */
  rest(chunk, written) {
    this.#buffer = chunk.buffer;
    if (this.#gatherer === null) return written;
    this.#run = Date.now() - this.#since <= HASTE ? this.#run + 1 : 0;
    if (!this.#gatherer && this.#run >= RUN) this.#gather();
    if (!this.#gatherer) return written;
    // Of a full buffer there is more to take.
    return this.#beat(written, this.#run > 0 && chunk.byteLength < MOST);
  }

  /** Until the caller has this chunk; with `whole`, for a beat at the least. */
  async #beat(written, whole) {
    let isWritten = !written;
    const isTaken = written?.then(() => (isWritten = true));
    const beat = new Promise((resolve) => setTimeout(resolve, BEAT));
    await (whole ? beat : Promise.race([beat, isTaken]));
    if (!isWritten) this.#stopGathering();
    return written;
  }

  /** The platform keeps for one branch of a stream what it gives to the other; so the other is read for nothing. */
  #gather() {
    this.#reader.releaseLock();
    const [ahead, kept] = this.#source.tee();
    const passage = new IdentityTransformStream();
    ahead.pipeTo(passage.writable).catch(() => {});
    this.#gatherer = passage.readable.getReader({ mode: "byob" });
    waste(this.#gatherer).catch(() => {});
    this.#source = kept;
    this.#reader = kept.getReader({ mode: "byob" });
  }

  /** The caller reads slower than the provider writes, who has to be held up: nothing may be read ahead. */
  #stopGathering() {
    this.#gatherer.cancel().catch(() => {});
    this.#gatherer = null;
  }
}

/** Reads to the end, in as few steps as it goes. */
async function waste(reader) {
  let buffer = new ArrayBuffer(MOST);
  for (;;) {
    const { done, value } = await reader.readAtLeast(MOST, new Uint8Array(buffer));
    if (done) return;
    buffer = value.buffer;
  }
}

/** The whole of a stream in one piece; a number, as above, where there is none. STOPPED: it is larger than `most`. */
export async function collect(source, patience, signal, most, until = Date.now() + patience) {
  const chunks = [];
  let length = 0;
  const how = await drain(source.getReader(), patience, signal, (chunk) => {
    chunks.push(chunk);
    length += chunk.byteLength;
    return length > most ? STOPPED : undefined;
  }, { until });
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
