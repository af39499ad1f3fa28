import { languageTag, locale } from '../lib/prefs';
import { en, type Dictionary, type Key } from './en';
import { zh } from './zh';

export type { Key } from './en';

const DICTIONARIES: Record<'en' | 'zh', Dictionary> = { en, zh };

export type Params = Record<string, string | number>;

/** The text of `key` in the language of the page, its `{name}` places filled. */
export function t(key: Key, params: Params = {}): string {
  return fill(DICTIONARIES[locale.value][key], params);
}

type CountStem<K> = K extends `${infer Stem}.one` ? (`${Stem}.other` extends Key ? Stem : never) : never;
type CountKey = CountStem<Key>;

/** A text that depends on a number: `key.one` or `key.other`, with `{n}` written in the language's way. */
export function tn(key: CountKey, n: number, params: Params = {}): string {
  const form = new Intl.PluralRules(languageTag()).select(n) === 'one' ? 'one' : 'other';
  return t(`${key}.${form}`, { n: new Intl.NumberFormat(languageTag()).format(n), ...params });
}

/** Whether a key exists, for texts whose key is built from data. */
export function isKey(key: string): key is Key {
  return key in en;
}

export function fill(text: string, params: Params): string {
  return text.replace(/\{(\w+)\}/g, (place, name: string) => String(params[name] ?? place));
}
