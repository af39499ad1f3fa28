// A gateway as far as the client knows one: it answers what it is told and remembers what it was asked.
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";

export const allowed = { allowed: true, reservation_id: "rsv_1", policies: [], headers: { "X-RateLimit-Remaining": "4", "X-Sluice-Decision": "allowed" } };
export const refused = {
  allowed: false,
  reservation_id: null,
  policies: [],
  headers: { "Retry-After": "60", "X-Sluice-Decision": "refused" },
  status: 429,
  error: { message: "Rate limit reached.", type: "requests", param: null, code: "rate_limit_exceeded", policy: "rate" },
  resetAt: "2026-06-22T00:00:00Z",
  request_id: "req_1",
};

export async function startFake() {
  const fake = { asked: [], answers: [], always: [200, allowed] };
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    fake.asked.push({ question: request.url.split("/").pop(), key: request.headers.authorization, body: JSON.parse(Buffer.concat(parts)) });
    const settling = !request.url.endsWith("consume");
    const [status, body, delay = 0] = settling ? [200, { settled: true }] : (fake.answers.shift() ?? fake.always);
    await pause(delay);
    if (status === 0) return response.destroy();
    response.writeHead(status, { "content-type": "application/json", "x-request-id": "req_9" });
    response.end(JSON.stringify(body));
  });
  await listen(server);
  return Object.assign(fake, { url: addressOf(server), stop: () => stop(server) });
}

export const listen = (server) => new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
export const addressOf = (server) => `http://127.0.0.1:${server.address().port}`;

export function stop(server) {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(resolve));
}

export async function until(condition) {
  for (let i = 0; i < 200 && !condition(); i++) await pause(10);
  if (!condition()) throw new Error("waited in vain");
}
