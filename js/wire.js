// Whatever crosses between the platform and Rust at the head of a call, in one step each: as single headers,
// every one would be a crossing of its own, and those are most of what a small call costs.

/** The head of a request: its method and its URL, a line each, and its headers as `lines` gives them. */
export function requestHead(request) {
  return `${request.method}\n${request.url}\n${lines(request.headers)}`;
}

/** An answer with headers as `lines` gives them. */
export function answer(status, head, body) {
  return new Response(body, { status, headers: headersOf(head) });
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

/** Headers out of their lines. One by one: a list of pairs takes the platform several times as long to read. */
export function headersOf(text) {
  const parts = text.split("\n");
  const headers = new Headers();
  for (let i = 0; i + 1 < parts.length; i += 2) headers.append(parts[i], parts[i + 1]);
  return headers;
}
