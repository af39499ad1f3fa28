// Whatever crosses between the platform and Rust at the head of a call, in one step each: as single headers,
// every one would be a crossing of its own, and those are most of what a small call costs.

/** The head of a request: its method and its URL, a line each, and its headers as `lines` gives them. */
export function requestHead(request) {
  return `${request.method}\n${request.url}\n${lines(request.headers)}`;
}

const headersOfAnswer = templates();

/** An answer with headers as `lines` gives them. */
export function answer(status, head, body) {
  return new Response(body, { status, headers: headersOfAnswer(head) });
}

/** The same, of bytes that are Rust's: they are copied. */
export function answerBytes(status, head, bytes) {
  return answer(status, head, bytes.slice());
}

/** Names and values of headers in turn, each with a line end. */
export function lines(headers) {
  let text = "";
  for (const [name, value] of headers) text += `${name}\n${value}\n`;
  return text;
}

/** Headers for a request, out of their lines; to be copied at once. */
export const headersOfRequest = templates();

/** Headers out of their lines. One by one: a list of pairs takes the platform several times as long to read. */
export function headersOf(text) {
  return appended(text.split("\n"));
}

function appended(parts) {
  const headers = new Headers();
  for (let i = 0; i + 1 < parts.length; i += 2) headers.append(parts[i], parts[i + 1]);
  return headers;
}

/**
 * Of headers with the same names one after the other, most have the same values, and to have all of them copied is cheaper
 * than to append each anew. So what is given is the same object again and again, and only what differs is set.
 */
function templates() {
  const byLength = new Map();
  return (text) => {
    const parts = text.split("\n");
    const last = byLength.get(parts.length);
    if (last && parts.every((part, index) => index % 2 || part === last.parts[index])) return set(last, parts);
    const headers = appended(parts);
    if (namesDiffer(parts)) byLength.set(parts.length, { parts, headers });
    return headers;
  };
}

/** What is set is noted at once: should the next one throw, both still agree. */
function set({ headers, parts: known }, parts) {
  for (let i = 1; i < parts.length; i += 2) {
    if (parts[i] === known[i]) continue;
    headers.set(parts[i - 1], parts[i]);
    known[i] = parts[i];
  }
  return headers;
}

/** A header that comes twice is one that cannot be set. */
const namesDiffer = (parts) => new Set(parts.filter((_, index) => index % 2 === 0)).size === Math.ceil(parts.length / 2);
