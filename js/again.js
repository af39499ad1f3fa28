// Answers that whoever shows the same credential at the same door is sure to get again, whatever the call says. Which
// ones and how long is decided in src/gateway/again.rs; here they are found and given without reading the call.
import { goOn } from "./tasks.js";
import { headersOf } from "./wire.js";

/** As many answers as src/gateway/again.rs knows of. */
const most = 1_000;
/** Longer addresses and credentials are not worth their room. */
const longestKey = 1_024;
/** Headers on which an answer depends beside the credential: who sends one is answered the long way. */
const others = ["origin", "prefer", "x-gateway-secret", "x-sluice-timing"];

const answers = new Map();
let last = 0;
let found;

/** Keeps an answer whose body is `before`, the call's id, `after`; gives its number, or 0 if it is none to be kept. */
export function keep(request, longest, status, head, before, after) {
  const key = keyOf(request, request.headers);
  if (!key) return 0;
  if (answers.size >= most && !answers.has(key)) answers.clear();
  const number = answers.get(key)?.number ?? ++last;
  answers.set(key, { number, longest, before, after, init: { status, headers: headersOf(head) } });
  return number;
}

/** The number of the answer to a call, or 0. */
export function find(request) {
  if (answers.size === 0) return 0;
  const { headers } = request;
  found = answers.get(keyOf(request, headers));
  return found && parseInt(headers.get("content-length")) <= found.longest ? found.number : 0;
}

/**
 * The answer that was found, under an id of its own. `read`: the body is read after all, and thrown away: Miniflare's
 * proxy in front of a local gateway would close the connection.
 */
export function give(request, id, read) {
  if (read) goOn(request.arrayBuffer().catch(() => {}));
  const { before, after, init } = found;
  init.headers.set("x-request-id", id);
  init.headers.set("request-id", id);
  return new Response(before + id + after, init);
}

function keyOf({ method, url }, headers) {
  if (method !== "POST" || others.some((name) => headers.has(name))) return undefined;
  const key = `${url}\n${headers.get("authorization")}\n${headers.get("x-api-key")}\n${headers.get("api-key")}`;
  return key.length <= longestKey ? key : undefined;
}
