/** What a refusal says about trying again. Milliseconds throughout. */
export interface RetryHint {
  retryAfterMs: number | null;
  resetAtMs: number | null;
}

/** How many times in a row the console tries again by itself before it leaves that to the person. */
export const MAX_AUTOMATIC_RETRIES = 5;

const SECOND = 1000;
const FALLBACK_WAIT_MS = 5 * SECOND;
const LEAST_JITTER_MS = SECOND;
const MOST_JITTER_MS = 30 * SECOND;

/** Reads `Retry-After`: whole seconds or an HTTP date; `null` where it says nothing usable. */
export function parseRetryAfter(value: string | null, nowMs: number): number | null {
  if (value === null) return null;
  const text = value.trim();
  if (/^\d+$/.test(text)) return Number(text) * SECOND;
  if (!/[a-z]/i.test(text)) return null;
  const date = Date.parse(text);
  return Number.isNaN(date) ? null : Math.max(0, date - nowMs);
}

/** The wait before the same call can succeed: `Retry-After` first, then the reset; never under a second. */
export function waitOf(hint: RetryHint, nowMs: number): number {
  const untilReset = hint.resetAtMs === null ? null : hint.resetAtMs - nowMs;
  return Math.max(SECOND, hint.retryAfterMs ?? untilReset ?? FALLBACK_WAIT_MS);
}

/**
 * Adds up to a tenth of the wait (at least up to 1 s, at most up to 30 s), so that the callers of one
 * reset do not all come back in the same moment. Never shortens the wait.
 */
export function withJitter(waitMs: number, random: () => number): number {
  const most = Math.min(MOST_JITTER_MS, Math.max(LEAST_JITTER_MS, waitMs / 10));
  return Math.round(waitMs + random() * most);
}

/** Whether a failed call is worth repeating unchanged. */
export function isRetryable(status: number): boolean {
  return status === 429 || status === 503 || status === 529;
}

/** A refusal the queue can take over: a quota is spent. Short limits are never queued. */
export function isQuotaSpent(error: { status: number; code: string | null; policy: string | null }): boolean {
  if (error.status !== 429) return false;
  if (error.policy === 'daily' || error.policy === 'monthly-tokens') return true;
  return error.code === 'insufficient_quota';
}

/** The clock and timer a countdown runs on; tests bring their own. */
export interface Ticker {
  now(): number;
  every(ms: number, run: () => void): () => void;
}

const systemTicker: Ticker = {
  now: () => Date.now(),
  every(ms, run) {
    const id = setInterval(run, ms);
    return () => clearInterval(id);
  },
};

const TICK_MS = 250;

/**
 * Calls `onTick` with the milliseconds left and `onDone` once at the end; returns how to cancel.
 * It compares with the clock at each tick: one long timer overflows after 24.8 days and oversleeps
 * when the machine has slept.
 */
export function startCountdown(
  waitMs: number,
  onTick: (leftMs: number) => void,
  onDone: () => void,
  ticker: Ticker = systemTicker,
): () => void {
  const end = ticker.now() + waitMs;
  let stop: (() => void) | undefined;
  const tick = () => {
    const left = end - ticker.now();
    if (left > 0) return onTick(left);
    stop?.();
    onDone();
  };
  stop = ticker.every(TICK_MS, tick);
  onTick(waitMs);
  return stop;
}
