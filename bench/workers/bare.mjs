// The least that a gateway in JavaScript does which reads a call and its answer and has something to say in its headers:
// no key, no plan, no count. What the platform asks for that is the floor of every gateway that decides something.

const headersOf = (pairs) => {
  const headers = new Headers();
  for (const [name, value] of pairs) headers.append(name, value);
  return headers;
};

/** As many as Sluice's answers have. */
const own = Array.from({ length: 22 }, (_, index) => [`x-header-${index}`, `value ${index}`]);

export default {
  async fetch(request, env, ctx) {
    const kept = [...request.headers].filter(([name]) => ["accept", "content-type", "user-agent"].includes(name));
    const body = await request.arrayBuffer();
    const timer = setTimeout(() => {}, 120_000);
    const answer = await fetch(env.UPSTREAM_URL + new URL(request.url).pathname, { method: "POST", headers: headersOf(kept), body, redirect: "manual" });
    clearTimeout(timer);
    if (!answer.headers.get("content-type")?.startsWith("text/event-stream")) return new Response(await answer.arrayBuffer(), { headers: headersOf(own) });
    const { readable, writable } = new IdentityTransformStream();
    ctx.waitUntil(pump(answer.body.getReader(), writable.getWriter()));
    return new Response(readable, { headers: headersOf(own) });
  },
};

/** Sees every chunk before it is passed on, as whoever counts or hides something has to. */
async function pump(reader, writer) {
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return writer.close();
    await writer.write(value);
  }
}
