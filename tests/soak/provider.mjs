// The provider of a soak: it mostly answers, sometimes fails in one of the ways providers fail, and remembers what it
// has charged for which call. A call is known by the mark in its prompt.
import { startUpstream } from "../harness/upstream.mjs";

/** Tokens the provider says a prompt has: fewer than the gateway estimates, so that a reservation holds. */
const promptTokens = 3;

export async function startProvider(rng) {
  const upstream = await startUpstream();
  const attempts = new Map();
  upstream.always((request) => {
    const mark = /call-\d+/.exec(request.body)?.[0];
    const attempt = { request, ...behaviour(request, rng) };
    attempts.set(mark, [...(attempts.get(mark) ?? []), attempt]);
    return attempt.told;
  });
  return { url: upstream.url, stop: () => upstream.stop(), attempts: (mark) => attempts.get(mark) ?? [], count: () => upstream.count() };
}

function behaviour({ json }, rng) {
  const bound = json?.max_tokens ?? json?.max_completion_tokens ?? json?.max_output_tokens ?? 16;
  const completion_tokens = rng.between(1, Math.min(bound, 40));
  const usage = { prompt_tokens: promptTokens, completion_tokens };
  const delay = rng.between(0, 60);
  const kind = rng.below(100);
  if (kind < 4) return { end: "error", told: { status: rng.pick([500, 503, 429, 400]), delay } };
  const content = Array.from({ length: rng.between(1, 6) }, () => "word ");
  const told = { delay, content, chunkDelay: rng.between(0, 40), usage };
  if (kind < 6 && json?.stream) return { end: "cut", told: { ...told, cutAfter: rng.between(1, 3) } };
  if (kind < 8) return { end: "unmetered", told: { ...told, usage: null } };
  return { end: "whole", tokens: promptTokens + completion_tokens, told };
}
