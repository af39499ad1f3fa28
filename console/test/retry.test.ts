import { describe, expect, it } from 'vitest';
import {
  isQuotaSpent,
  isRetryable,
  parseRetryAfter,
  startCountdown,
  waitOf,
  withJitter,
  type Ticker,
} from '../src/lib/retry';

const NOW = Date.UTC(2026, 5, 22);

describe('parseRetryAfter', () => {
  it('reads whole seconds', () => expect(parseRetryAfter('3600', NOW)).toBe(3_600_000));
  it('reads an HTTP date', () => expect(parseRetryAfter('Mon, 22 Jun 2026 00:00:30 GMT', NOW)).toBe(30_000));
  it('never goes below zero', () => expect(parseRetryAfter('Sun, 21 Jun 2026 00:00:00 GMT', NOW)).toBe(0));
  it.each([null, '', 'soon', '-5', '1.5'])('finds nothing usable in %j', (value) =>
    expect(parseRetryAfter(value, NOW)).toBeNull());
});

describe('waitOf', () => {
  it('prefers Retry-After to the reset', () =>
    expect(waitOf({ retryAfterMs: 4000, resetAtMs: NOW + 9000 }, NOW)).toBe(4000));
  it('falls back to the reset', () => expect(waitOf({ retryAfterMs: null, resetAtMs: NOW + 9000 }, NOW)).toBe(9000));
  it('waits a little where nothing is said', () =>
    expect(waitOf({ retryAfterMs: null, resetAtMs: null }, NOW)).toBe(5000));
  it('never comes back at once', () => expect(waitOf({ retryAfterMs: 0, resetAtMs: NOW - 1 }, NOW)).toBe(1000));
});

describe('withJitter', () => {
  it('never shortens the wait', () => expect(withJitter(10_000, () => 0)).toBe(10_000));
  it('adds up to a tenth', () => expect(withJitter(100_000, () => 0.999)).toBeCloseTo(109_990, -2));
  it('adds up to a second to a short wait', () => expect(withJitter(1000, () => 0.5)).toBe(1500));
  it('adds half a minute at most', () => expect(withJitter(86_400_000, () => 1)).toBe(86_430_000));
});

describe('which refusals', () => {
  it.each([429, 503, 529])('%i is tried again', (status) => expect(isRetryable(status)).toBe(true));
  it.each([0, 400, 401, 403, 500, 502])('%i is not', (status) => expect(isRetryable(status)).toBe(false));

  it('a spent quota can be queued', () => {
    expect(isQuotaSpent({ status: 429, code: 'insufficient_quota', policy: null })).toBe(true);
    expect(isQuotaSpent({ status: 429, code: 'tokens_reserved', policy: 'monthly-tokens' })).toBe(true);
  });
  it('a short limit cannot', () =>
    expect(isQuotaSpent({ status: 429, code: 'rate_limit_exceeded', policy: 'rate' })).toBe(false));
  it('nor can anything but a 429', () =>
    expect(isQuotaSpent({ status: 400, code: 'insufficient_quota', policy: 'daily' })).toBe(false));
});

describe('startCountdown', () => {
  function clock() {
    let now = NOW;
    let run: (() => void) | null = null;
    const ticker: Ticker = {
      now: () => now,
      every(_ms, tick) {
        run = tick;
        return () => (run = null);
      },
    };
    return {
      ticker,
      ticking: () => run !== null,
      advance(ms: number) {
        now += ms;
        run?.();
      },
    };
  }

  it('tells what is left and ends once', () => {
    const { ticker, advance, ticking } = clock();
    const left: number[] = [];
    let done = 0;
    startCountdown(1000, (ms) => left.push(ms), () => (done += 1), ticker);
    advance(400);
    advance(600);
    advance(1000);
    expect(left).toEqual([1000, 600]);
    expect(done).toBe(1);
    expect(ticking()).toBe(false);
  });

  it('can be cancelled', () => {
    const { ticker, advance } = clock();
    let done = 0;
    startCountdown(1000, () => undefined, () => (done += 1), ticker)();
    advance(5000);
    expect(done).toBe(0);
  });

  it('survives waits longer than a timer can hold, and a machine that slept', () => {
    const { ticker, advance } = clock();
    const month = 31 * 86_400_000;
    let done = 0;
    startCountdown(month, () => undefined, () => (done += 1), ticker);
    advance(month - 1);
    expect(done).toBe(0);
    advance(86_400_000);
    expect(done).toBe(1);
  });
});
