// Reads JSON of unknown shape: what is missing or of another type becomes an empty value, never a crash.

export type Json = Record<string, unknown>;

export function asRecord(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
}

export function asArray(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

export function asText(value: unknown): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

export function asNumber(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

// Beyond this, `Date` is invalid and formatting throws.
const LATEST_DATE_MS = 8.64e15;

/** A time in milliseconds, from RFC 3339 text or Unix seconds. */
export function asTime(value: unknown): number | null {
  const ms = typeof value === 'number' ? value * 1000 : typeof value === 'string' ? Date.parse(value) : NaN;
  return Math.abs(ms) <= LATEST_DATE_MS ? ms : null;
}

export function oneOf<T extends string>(value: unknown, allowed: readonly T[], otherwise: T): T {
  return allowed.find((one) => one === value) ?? otherwise;
}

export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

/** A list answer: `{"data":[…],"next_cursor":…}`. */
export function asPage<T>(body: unknown, readItem: (item: unknown) => T): Page<T> {
  const root = asRecord(body);
  return { items: asArray(root['data']).map(readItem), nextCursor: asText(root['next_cursor']) };
}
