import { t, isKey } from '../i18n';
import { spanOf } from './duration';
import { languageTag } from './prefs';

// `Intl` formatters are slow to make and are needed for every cell of every table.
const numberFormats = new Map<string, Intl.NumberFormat>();
const dateFormats = new Map<string, Intl.DateTimeFormat>();

function numberFormat(name: string, options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = `${languageTag()} ${name}`;
  const format = numberFormats.get(key) ?? new Intl.NumberFormat(languageTag(), options);
  numberFormats.set(key, format);
  return format;
}

function dateFormat(name: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${languageTag()} ${name}`;
  const format = dateFormats.get(key) ?? new Intl.DateTimeFormat(languageTag(), options);
  dateFormats.set(key, format);
  return format;
}

export function number(value: number): string {
  return numberFormat('plain', {}).format(value);
}

export function compact(value: number): string {
  return numberFormat('compact', { notation: 'compact', maximumFractionDigits: 1 }).format(value);
}

export function percent(share: number | null): string {
  if (share === null) return '–';
  return numberFormat('percent', { style: 'percent', maximumFractionDigits: 1 }).format(share);
}

export function dateTime(ms: number): string {
  return dateFormat('dateTime', { dateStyle: 'medium', timeStyle: 'short' }).format(ms);
}

/** A day of the gateway, which counts days in UTC. */
export function day(ms: number): string {
  return dateFormat('day', { month: 'short', day: 'numeric', timeZone: 'UTC' }).format(ms);
}

/** The three largest units of a wait, so that the last one is seen to count: "2 h 5 min 9 s". */
export function duration(ms: number): string {
  const { days, hours, minutes, seconds } = spanOf(ms);
  const parts: [number, string][] = [
    [days, t('unit.day')],
    [hours, t('unit.hour')],
    [minutes, t('unit.minute')],
    [seconds, t('unit.second')],
  ];
  const first = parts.findIndex(([n]) => n > 0);
  if (first === -1) return `0 ${t('unit.second')}`;
  const shown = parts.slice(first, first + 3).filter(([n]) => n > 0);
  return shown.map(([n, unit]) => `${n} ${unit}`).join(' ');
}

/** The name people know a policy by. */
export function policyName(name: string): string {
  if (name.startsWith('endpoint:')) return t('policy.endpoint', { name: name.slice('endpoint:'.length) });
  const key = `policy.${name}`;
  return isKey(key) ? t(key) : name;
}
