// The provider of a soak: it mostly answers, sometimes fails in one of the ways providers fail, and remembers what it
// has charged for which call. A call is known by the mark in its prompt.
import { startUpstream } from "../harness/upstream.mjs";

/** Tokens the provider says a prompt has: fewer than the gateway estimates, so that a reservation holds. */
const promptTokens = 3;
/** What comes before the first piece of text in a stream, by protocol. */
const eventsBefore = { chat: 1, anthropic: 3 };

/** `now` is the gateway's clock. */
export async function startProvider(rng, now) {
  const upstream = await startUpstream();
  const attempts = new Map();
  upstream.always((request) => {
    const mark = /call-\d+/.exec(request.body)?.[0];
    const attempt = { at: request.at, now: now(), ...behaviour(request, rng) };
    attempts.set(mark, [...(attempts.get(mark) ?? []), attempt]);
    return attempt.told;
  });
  return { url: upstream.url, stop: () => upstream.stop(), attempts: (mark) => attempts.get(mark) ?? [] };
}

/**
 * What becomes of a request: {end: whole, cut or error, told, tokens ([prompt, completion], unless the provider does not
 * tell), pieces (of text, a token each), relayed (of these, before the cut), stream, anthropic}.
 */
function behaviour({ json, path }, rng) {
  const bound = json?.max_tokens ?? json?.max_completion_tokens ?? json?.max_output_tokens ?? 16;
  const completion_tokens = rng.between(1, Math.min(bound, 40));
  const usage = { prompt_tokens: promptTokens, completion_tokens };
  const delay = rng.between(0, 60);
  const kind = rng.below(100);
  if (kind < 4) return { end: "error", told: { status: rng.pick([500, 503, 429, 400]), delay } };
  const pieces = Math.min(rng.between(1, 6), completion_tokens);
  const content = Array.from({ length: pieces }, () => "word ");
  const told = { delay, content, chunkDelay: rng.between(0, 40), usage };
  const shape = { pieces, stream: json?.stream === true, anthropic: path.endsWith("/messages") };
  const tokens = [promptTokens, completion_tokens];
  if (kind < 6 && shape.stream) {
    const cutAfter = rng.between(1, 3);
    const before = eventsBefore[shape.anthropic ? "anthropic" : "chat"];
    return { ...shape, end: "cut", tokens, relayed: Math.min(Math.max(cutAfter - before, 0), pieces), told: { ...told, cutAfter } };
  }
  if (kind < 8) return { ...shape, end: "whole", told: { ...told, usage: null } };
  return { ...shape, end: "whole", tokens, told };
}
