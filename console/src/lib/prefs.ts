import { effect, signal } from '@preact/signals';

export type Locale = 'en' | 'zh';
export type Theme = 'auto' | 'light' | 'dark';

const LOCALE_KEY = 'sluice.locale';
const THEME_KEY = 'sluice.theme';

/** The language of the page: what was picked by hand, else what the browser asks for. */
export const locale = signal<Locale>(chosenLocale());
/** The colour scheme: `auto` follows the system. */
export const theme = signal<Theme>(chosenTheme());

/** The language tag for `lang` attributes and `Intl`. */
export function languageTag(of: Locale = locale.value): string {
  return of === 'zh' ? 'zh-CN' : 'en';
}

/** The first of the browser's languages that the console speaks. */
export function localeFor(languages: readonly string[]): Locale {
  for (const language of languages) {
    const primary = language.toLowerCase().split('-')[0];
    if (primary === 'zh' || primary === 'en') return primary;
  }
  return 'en';
}

export function pickLocale(next: Locale): void {
  locale.value = next;
  remember(LOCALE_KEY, next);
}

export function pickTheme(next: Theme): void {
  theme.value = next;
  remember(THEME_KEY, next);
}

/** Keeps the document's language and colour scheme in step with the choices. */
export function applyPrefs(): void {
  effect(() => {
    document.documentElement.lang = languageTag();
  });
  effect(() => {
    if (theme.value === 'auto') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme.value;
  });
}

function chosenLocale(): Locale {
  const kept = recall(LOCALE_KEY);
  if (kept === 'en' || kept === 'zh') return kept;
  return localeFor(globalThis.navigator?.languages ?? []);
}

function chosenTheme(): Theme {
  const kept = recall(THEME_KEY);
  return kept === 'light' || kept === 'dark' ? kept : 'auto';
}

// Storage may be switched off in the browser; a preference is then kept for this visit only.
function recall(key: string): string | null {
  try {
    return globalThis.localStorage?.getItem(key) ?? null;
  } catch {
    return null;
  }
}

function remember(key: string, value: string): void {
  try {
    globalThis.localStorage?.setItem(key, value);
  } catch {
    return;
  }
}
