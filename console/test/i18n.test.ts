import { describe, expect, it } from 'vitest';
import { readdirSync, readFileSync } from 'node:fs';
import { fill } from '../src/i18n';
import { en } from '../src/i18n/en';
import { zh } from '../src/i18n/zh';
import { localeFor } from '../src/lib/prefs';

const places = (text: string) => (text.match(/\{\w+\}/g) ?? []).sort();
const keys = Object.keys(en) as (keyof typeof en)[];

describe('the dictionaries', () => {
  it('have the same keys', () => expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort()));
  it('leave no text empty', () => {
    expect(keys.filter((key) => en[key].trim() === '' || zh[key].trim() === '')).toEqual([]);
  });
  it('fill the same places', () => {
    expect(keys.filter((key) => places(en[key]).join() !== places(zh[key]).join())).toEqual([]);
  });
  it('hold no text that nothing shows', () => {
    const source = sources('src').map((path) => readFileSync(path, 'utf8')).join('\n');
    const builtFromData = /^(policy|field|job|alert|notice|unit|effect|strategy|upstream|problem)\./;
    const unused = keys.filter((key) => {
      const stem = key.replace(/\.(one|other)$/, '');
      return !builtFromData.test(key) && !source.includes(`'${key}'`) && !source.includes(`'${stem}'`);
    });
    expect(unused).toEqual([]);
  });
});

describe('fill', () => {
  it('puts values in their places', () => expect(fill('{n} of {m}', { n: 1, m: 2 })).toBe('1 of 2'));
  it('leaves a place that has no value', () => expect(fill('{n}', {})).toBe('{n}'));
  it('does not read values as patterns', () => expect(fill('{n}', { n: '$& {m}' })).toBe('$& {m}'));
});

describe('localeFor', () => {
  it.each([
    [['zh-TW', 'en'], 'zh'],
    [['de', 'zh-CN', 'en'], 'zh'],
    [['en-GB', 'zh'], 'en'],
    [['fr'], 'en'],
    [[], 'en'],
  ])('%j speaks %s', (languages, expected) => expect(localeFor(languages)).toBe(expected));
});

function sources(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name) && !/i18n.(en|zh)\.ts$/.test(name))
    .map((name) => `${folder}/${name}`);
}
