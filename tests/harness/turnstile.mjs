// A door in front of the gateway that counts who goes through: an SDK's retries can be seen nowhere else.
import { createServer, request as forward } from "node:http";

/** Starts a turnstile; `passed` are the paths that went through since the last `reset`. */
export async function startTurnstile(url) {
  const turnstile = { passed: [], reset: () => (turnstile.passed = []) };
  const server = createServer((request, response) => {
    turnstile.passed.push(request.url);
    const onward = forward(url + request.url, { method: request.method, headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    request.pipe(onward);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  turnstile.url = `http://127.0.0.1:${server.address().port}`;
  turnstile.stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return turnstile;
}
