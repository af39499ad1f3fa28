import { Languages, SunMoon } from 'lucide-preact';
import { t } from '../i18n';
import { locale, pickLocale, pickTheme, theme, type Locale, type Theme } from '../lib/prefs';

/** Language and colour scheme. A language is always named in itself. */
export function Preferences() {
  return (
    <div class="prefs">
      <label class="pref">
        <Languages aria-hidden="true" size={16} />
        <span class="visually-hidden">{t('pref.language')}</span>
        <select value={locale.value} onChange={(event) => pickLocale(event.currentTarget.value as Locale)}>
          <option value="en" lang="en">
            English
          </option>
          <option value="zh" lang="zh-CN">
            中文
          </option>
        </select>
      </label>
      <label class="pref">
        <SunMoon aria-hidden="true" size={16} />
        <span class="visually-hidden">{t('pref.theme')}</span>
        <select value={theme.value} onChange={(event) => pickTheme(event.currentTarget.value as Theme)}>
          <option value="auto">{t('pref.theme.auto')}</option>
          <option value="light">{t('pref.theme.light')}</option>
          <option value="dark">{t('pref.theme.dark')}</option>
        </select>
      </label>
    </div>
  );
}
