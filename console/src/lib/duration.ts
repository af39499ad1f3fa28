export interface Span {
  days: number;
  hours: number;
  minutes: number;
  seconds: number;
}

/** Splits milliseconds into units, rounded up to a whole second, never negative. */
export function spanOf(ms: number): Span {
  const total = Math.max(0, Math.ceil(ms / 1000));
  return {
    days: Math.floor(total / 86_400),
    hours: Math.floor((total % 86_400) / 3600),
    minutes: Math.floor((total % 3600) / 60),
    seconds: total % 60,
  };
}

/** An ISO 8601 duration for the `datetime` attribute of `<time>`. */
export function isoDuration(ms: number): string {
  const { days, hours, minutes, seconds } = spanOf(ms);
  return `P${days}DT${hours}H${minutes}M${seconds}S`;
}
