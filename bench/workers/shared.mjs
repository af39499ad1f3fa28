// What both Hono limiters do alike.

/** The API key a caller shows, or null. */
export function keyOf(c) {
  const header = c.req.header("authorization") ?? "";
  return header.startsWith("Bearer ") ? header.slice(7) : null;
}

/** Keys are stored hashed. */
export async function hashed(key) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The UTC date. */
export const today = () => new Date().toISOString().slice(0, 10);

/** The call goes on to the upstream, under the gateway's own key. */
export function forward(c) {
  const { pathname, search } = new URL(c.req.url);
  const headers = new Headers(c.req.raw.headers);
  headers.set("authorization", `Bearer ${c.env.UPSTREAM_API_KEY}`);
  return fetch(c.env.UPSTREAM_URL + pathname + search, { method: c.req.method, headers, body: c.req.raw.body });
}

/** The headers of an answer that was let through. */
export function limited(answer, limit, used) {
  const response = new Response(answer.body, answer);
  response.headers.set("x-ratelimit-limit", String(limit));
  response.headers.set("x-ratelimit-remaining", String(Math.max(0, limit - used)));
  return response;
}
