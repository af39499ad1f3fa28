// A provider on a local port, speaking OpenAI's and Anthropic's protocols, that does what a test tells it and
// remembers every call. Any other path is answered with an echo, as a protected service would be.
//
//   const upstream = await startUpstream();
//   upstream.always({ content: "hi", usage: { prompt_tokens: 5, completion_tokens: 7 } });
//   upstream.next({ status: 500 }, { hang: true });          // the next two calls, then `always` again
//   upstream.on("/v1/embeddings", (request) => ({ delay: 50 }));
//   upstream.requests                                        // [{method, path, headers, body, json, at, answeredAt, gone, …}]
//
// Behaviour, all optional:
//   delay         ms before the status line             hang        never answers
//   status, body  the answer as it is (object or text)  headers     added to the answer ("set-cookie": [a, b])
//   redirect      302 to this URL                       content     the answer's text, or pieces: an array
//   usage         the numbers; null: none               usageIn     where a stream has them: "last" (default; only if
//                                                                   asked), "always-last", "finish", "empty-delta", "every"
//   finish        finish_reason                         chunkDelay  ms between pieces on the wire
//   events        SSE data, objects or raw text, in place of the made ones
//   raw           the stream's exact bytes              split       bytes a write, or a list of offsets to cut at
//   cutAfter      events, then the connection dies      hangAfter   events, then silence
//   errorAfter    events, then an error event           done        false: no [DONE]
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { protocolOf } from "./protocols.mjs";

export async function startUpstream() {
  const upstream = new Upstream();
  await upstream.start();
  return upstream;
}

class Upstream {
  requests = [];
  #script = [];
  #byPath = new Map();
  #default = {};
  #waiting = new Set();

  async start() {
    this.server = createServer((request, response) => this.#serve(request, response).catch(() => response.destroy()));
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.server.address().port}`;
  }

  async stop() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** What a call gets that nothing else was said about; an object or a function of the request. */
  always(behaviour) {
    this.#default = behaviour;
  }

  next(...behaviours) {
    this.#script.push(...behaviours);
  }

  on(path, behaviour) {
    this.#byPath.set(path, behaviour);
  }

  /** Forgets all calls and all instructions. */
  reset() {
    this.requests = [];
    this.#script = [];
    this.#byPath.clear();
    this.#default = {};
  }

  /** Calls so far, of one path or all. */
  count(path) {
    return this.requests.filter((request) => !path || request.path === path).length;
  }

  get last() {
    return this.requests.at(-1);
  }

  /** Waits until something about the calls is true, looking again at every arrival and departure. */
  async until(condition, patience = 10_000) {
    const deadline = Date.now() + patience;
    while (!condition(this)) {
      if (Date.now() > deadline) throw new Error(`upstream: waited ${patience} ms in vain, after ${this.count()} calls`);
      await Promise.race([new Promise((resolve) => this.#waiting.add(resolve)), pause(100)]);
    }
  }

  #changed() {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  async #serve(request, response) {
    const record = await this.#remember(request, response);
    const told = this.#script.shift() ?? this.#byPath.get(record.path) ?? this.#default;
    const behaviour = typeof told === "function" ? await told(record) : told;
    if (behaviour.hang) return;
    if (behaviour.delay) await pause(behaviour.delay);
    record.answeredAt = Date.now();
    await answer(record, response, behaviour);
  }

  async #remember(request, response) {
    const url = new URL(request.url, this.url);
    const record = { method: request.method, path: url.pathname, query: url.search, headers: request.headers, rawHeaders: request.rawHeaders, at: Date.now(), gone: false, finished: false, sent: 0 };
    this.requests.push(record);
    response.on("close", () => {
      record.finished = response.writableFinished;
      record.gone = !response.writableFinished && !record.cut;
      this.#changed();
    });
    const parts = [];
    for await (const part of request) parts.push(part);
    record.bytes = Buffer.concat(parts);
    record.body = record.bytes.toString("utf8");
    record.json = parsed(record.body);
    this.#changed();
    return record;
  }
}

async function answer(record, response, behaviour) {
  if (behaviour.redirect) return plain(response, { ...behaviour, status: 302, body: "", headers: { location: behaviour.redirect, ...behaviour.headers } });
  if (behaviour.body !== undefined || (behaviour.status ?? 200) >= 300) return plain(response, behaviour);
  if (behaviour.events || behaviour.raw !== undefined) return stream(record, response, behaviour, behaviour.events ?? []);
  const protocol = protocolOf(record);
  if (record.json?.stream && protocol.events) return stream(record, response, behaviour, protocol.events(record, behaviour), protocol);
  return plain(response, { ...behaviour, body: protocol.whole(record, behaviour) });
}

function plain(response, { status = 200, body, headers }) {
  const made = body ?? { error: { message: `upstream says ${status}`, type: "server_error", param: null, code: null } };
  const text = typeof made === "string" || Buffer.isBuffer(made) ? made : JSON.stringify(made);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text), ...headers });
  response.end(text);
}

/** Writes server-sent events one by one, and ends, breaks or falls silent where it was told to. */
async function stream(record, response, behaviour, events, protocol) {
  response.writeHead(behaviour.status ?? 200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", ...behaviour.headers });
  response.flushHeaders();
  const write = (bytes) => send(record, response, bytes, behaviour);
  if (behaviour.raw !== undefined) {
    await write(Buffer.from(behaviour.raw));
    return response.end();
  }
  if (behaviour.split !== undefined) {
    await write(Buffer.from([...events, ...ending(behaviour, protocol)].map(sse).join("")));
    return response.end();
  }
  for (const [index, event] of [...events, ...ending(behaviour, protocol)].entries()) {
    if (index === behaviour.cutAfter) {
      record.cut = true;
      return response.destroy();
    }
    if (index === behaviour.hangAfter) return;
    if (index === behaviour.errorAfter) {
      await write(Buffer.from(sse(protocol?.error ?? defaultError)));
      return response.end();
    }
    await write(Buffer.from(sse(event)));
  }
  response.end();
}

const defaultError = { error: { message: "The server had an error", type: "server_error", param: null, code: null } };

const ending = (behaviour, protocol) => (behaviour.done !== false && protocol?.done ? [protocol.done] : []);

/** An event is an object, raw text, or {event, data} with the event's name. */
function sse(event) {
  if (typeof event === "string") return event;
  const { event: name, data } = "data" in event && "event" in event ? event : { data: event };
  return `${name ? `event: ${name}\n` : ""}data: ${JSON.stringify(data)}\n\n`;
}

async function send(record, response, bytes, { split, chunkDelay = 0 }) {
  for (const piece of pieces(bytes, split)) {
    if (response.destroyed) return;
    await new Promise((resolve) => response.write(piece, resolve));
    record.sent += piece.length;
    if (chunkDelay > 0 || split !== undefined) await pause(chunkDelay);
  }
}

function pieces(bytes, split) {
  if (split === undefined) return [bytes];
  const offsets = Array.isArray(split) ? split : Array.from({ length: Math.ceil(bytes.length / split) - 1 }, (_, i) => (i + 1) * split);
  const edges = [0, ...offsets.filter((at) => at > 0 && at < bytes.length), bytes.length];
  return edges.slice(1).map((end, i) => bytes.subarray(edges[i], end));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
