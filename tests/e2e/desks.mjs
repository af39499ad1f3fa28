// Both desks of the console, in one browser and one language, as the tests handle them.
import assert from "node:assert/strict";
import { en } from "../../console/src/i18n/en.ts";
import { zh } from "../../console/src/i18n/zh.ts";
import { loaded, openBrowser } from "../harness/browser.mjs";

const dictionaries = { en, zh };

/** Opens a browser whose user reads `language`, "en" or "zh", with a tab for each desk. */
export async function openDesks(gateway, language) {
  const browser = await openBrowser({ origin: gateway.url, language: language === "zh" ? "zh-CN" : "en" });
  return new Desks(gateway, browser, language, await browser.newPage(), await browser.newPage());
}

class Desks {
  constructor(gateway, browser, language, operator, caller) {
    Object.assign(this, { gateway, browser, language, operator, caller });
  }

  /** A text of the console in its user's language. */
  t(key, params = {}) {
    return textOf(this.language, key, params);
  }

  async open(page, desk, path) {
    await page.goto(`${this.gateway.url}/${desk}/#${path}`);
    await loaded(page);
  }

  openUser(user) {
    return this.open(this.operator, "console", userPath(user));
  }

  async signIn(page, desk, label, credential) {
    if (!page.url().startsWith(`${this.gateway.url}/${desk}/`)) await page.goto(`${this.gateway.url}/${desk}/`);
    await page.getByLabel(this.t(label)).fill(credential);
    await button(page, this.t("signIn.submit")).click();
  }

  dialog() {
    return this.operator.getByRole("dialog");
  }

  /** Opens a dialog of the operator's by its button, fills it in, and submits it. */
  async change(opener, submit, fill = () => {}) {
    await button(this.operator, opener).first().click();
    await fill(this.dialog());
    await this.dialog().locator("button[type=submit]", { hasText: submit }).click();
  }

  async said(text) {
    await this.operator.locator(".toast", { hasText: text }).waitFor();
  }

  /** Nothing went wrong in the browser, and nothing was refused but what matches one of `expected`. */
  noSurprises(...expected) {
    assert.deepEqual(this.browser.wrongs(), []);
    const unexpected = this.browser.takeRefusals().filter((line) => !expected.some((pattern) => pattern.test(line)));
    assert.deepEqual(unexpected, []);
  }

  /** The page on a desk and on a telephone, by day and by night. */
  async picture(page, name) {
    await this.browser.look(page, `${name}-${this.language}`, { width: 1280, scheme: "light" });
    await this.browser.look(page, `${name}-${this.language}`, { width: 360, scheme: "dark" });
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1280, height: 900 });
  }

  close() {
    return this.browser.close();
  }
}

export const textOf = (language, key, params = {}) => dictionaries[language][key].replace(/\{(\w+)\}/g, (_, name) => params[name]);

export const button = (scope, name) => scope.getByRole("button", { name, exact: true });

/** The address of a user's page; `~` stands for the usual `%`. */
export const userPath = (user) => `/users/${encodeURIComponent(user).replaceAll("%", "~")}`;
