import { dateTime } from '../lib/format';

/** A point in time as the reader's clock shows it, or a dash where there is none. */
export function Moment({ at, none = '–' }: { at: number | null; none?: string }) {
  if (at === null) return <>{none}</>;
  return <time dateTime={new Date(at).toISOString()}>{dateTime(at)}</time>;
}
