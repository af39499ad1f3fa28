import { describe, expect, it } from 'vitest';
import { ApiError } from '../src/lib/api';
import { isoDuration, spanOf } from '../src/lib/duration';
import { duration } from '../src/lib/format';
import { fromSegment, toSegment } from '../src/lib/links';
import { completionText, readAlert, readJob, readNotice, readQuota, readStats, readUsageDay } from '../src/lib/model';
import { asPage, asTime } from '../src/lib/read';
import { messagesOf } from '../src/me/conversation';

describe('times', () => {
  it('come as RFC 3339 or as Unix seconds', () => {
    expect(asTime('2026-06-22T00:00:00Z')).toBe(Date.UTC(2026, 5, 22));
    expect(asTime(1_782_086_400)).toBe(Date.UTC(2026, 5, 22));
    expect(asTime('soon')).toBeNull();
    expect(asTime(1e300)).toBeNull();
  });
});

describe('durations', () => {
  it('round up to whole seconds', () => expect(spanOf(1001).seconds).toBe(2));
  it('never go below zero', () => expect(spanOf(-5)).toEqual({ days: 0, hours: 0, minutes: 0, seconds: 0 }));
  it.each([
    [0, '0 s'],
    [12_000, '12 s'],
    [7_509_000, '2 h 5 min 9 s'],
    [86_400_000 + 60_000, '1 d 1 min'],
  ])('%i ms read as %s', (ms, text) => expect(duration(ms)).toBe(text));
  it('split into units', () => expect(isoDuration(93_784_000)).toBe('P1DT2H3M4S'));
});

describe('ids in addresses', () => {
  it.each(['ada', 'a/b', 'a%2Fb', '~', '100%', '用户', 'a b?c#d'])('%j comes back as it was', (id) => {
    const segment = toSegment(id);
    expect(segment).not.toMatch(/[/%?#]/);
    expect(fromSegment(decodeURI(segment))).toBe(id);
  });
});

describe('answers with holes', () => {
  it.each([null, undefined, 'text', 7, [], {}])('%j breaks nothing', (body) => {
    expect(readQuota(body).policies).toEqual([]);
    expect(readStats(body).totals.refusalRate).toBeNull();
    expect(asPage(body, readJob)).toEqual({ items: [], nextCursor: null });
    expect(readNotice(body).read).toBe(false);
    expect(readAlert(body).detail).toBeNull();
    expect(completionText(body)).toBeNull();
  });
  it('leaves open what an endpoint let through unless that was counted', () => {
    const row = { name: 'export', allowed: null, refused: 3, refusal_rate: null };
    expect(readStats({ endpoints: [row] }).endpoints).toEqual([
      { name: 'export', allowed: null, refused: 3, refusalRate: null },
    ]);
  });
  it('works out what is not said', () => {
    expect(readQuota({ policies: [{ name: 'daily', limit: 5, used: 8 }] }).policies[0]?.remaining).toBe(0);
    expect(readStats({ totals: { allowed: 3, refused: 1 } }).totals.refusalRate).toBe(0.25);
    expect(readUsageDay({ prompt_tokens: 2, completion_tokens: 3 }).tokens).toBe(5);
  });
});

describe('ApiError', () => {
  it('knows what ran out and when it is back', () => {
    const body = {
      error: { message: 'No more.', code: 'insufficient_quota', policy: 'daily', limit: 10, remaining: 0 },
      resetAt: '2026-06-22T00:00:00Z',
      request_id: 'req_1',
    };
    const error = new ApiError(429, body, new Headers({ 'retry-after': '60' }));
    expect(error).toMatchObject({
      message: 'No more.',
      policy: 'daily',
      limit: 10,
      remaining: 0,
      resetAtMs: Date.UTC(2026, 5, 22),
      retryAfterMs: 60_000,
      requestId: 'req_1',
      unreachable: false,
    });
  });
  it('tells no answer from a broken stream', () => {
    expect(new ApiError(0, null).unreachable).toBe(true);
    expect(new ApiError(0, { error: { message: 'cut' } })).toMatchObject({ unreachable: false, message: 'cut' });
  });
});

describe('messagesOf', () => {
  it('leaves out questions that never got an answer', () =>
    expect(
      messagesOf([
        { question: 'a', answer: 'A' },
        { question: 'b', answer: '' },
        { question: 'c', answer: '' },
      ]),
    ).toEqual([
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'A' },
      { role: 'user', content: 'c' },
    ]));
});
