// A real Chromium with an empty profile, that remembers whatever a page did and should not have done.
//
//   const browser = await openBrowser({ origin: gateway.url, language: "zh-CN" });
//   const page = await browser.newPage();
//   await browser.look(page, "users", { width: 360 });      // keeps a picture, asks axe
//   assert.deepEqual(browser.wrongs(), []);
//   await browser.close();
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import axe from "axe-core";
import { chromium } from "playwright-core";
import { chromiumPath } from "../../scripts/lib/chromium.mjs";
import { inRoot } from "../../scripts/lib/paths.mjs";

const flags = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-proxy-server",
];
const artefacts = inRoot("test-artefacts");

/** Why tests that need a browser can't run here, or false. */
export const skip = chromiumPath() ? false : "there is no Chromium on this machine";

/** Opens the browser. `origin` is the only place its pages may call; `language` is what its user reads. */
export async function openBrowser({ origin, language }) {
  const profile = mkdtempSync(join(tmpdir(), "sluice-browser-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: chromiumPath(),
    args: flags,
    locale: language,
    viewport: { width: 1280, height: 900 },
    reducedMotion: "reduce",
  });
  const browser = new Browser(context, origin, profile);
  await browser.watch();
  return browser;
}

class Browser {
  #context;
  #origin;
  #profile;
  #wrongs = [];
  #refusals = [];

  constructor(context, origin, profile) {
    this.#context = context;
    this.#origin = origin;
    this.#profile = profile;
    mkdirSync(artefacts, { recursive: true });
  }

  async watch() {
    this.#context.setDefaultTimeout(30_000);
    this.#context.on("request", (request) => {
      if (!request.url().startsWith(`${this.#origin}/`)) this.#wrongs.push(`calls ${request.url()}`);
    });
    this.#context.on("response", (response) => {
      if (response.status() >= 400) this.#refusals.push(`${response.status()} ${response.request().method()} ${response.url().slice(this.#origin.length)}`);
    });
    this.#context.on("weberror", (error) => this.#wrongs.push(`throws ${error.error().stack}`));
    this.#context.on("console", (message) => {
      // What a call was answered is told by `refusals`.
      const isAnswer = /^Failed to load resource/.test(message.text());
      if (["error", "warning"].includes(message.type()) && !isAnswer) this.#wrongs.push(`says ${message.text()}`);
    });
    await this.#context.exposeBinding("reportViolation", (_, text) => this.#wrongs.push(`breaks its policy: ${text}`));
    await this.#context.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) => window.reportViolation(`${event.violatedDirective} ${event.blockedURI}`));
    });
  }

  newPage() {
    return this.#context.newPage();
  }

  /** Calls to elsewhere, exceptions, complaints on the console and breaches of the content security policy. */
  wrongs() {
    return this.#wrongs;
  }

  /** Answers of 400 and above since the last time this was asked. */
  takeRefusals() {
    return this.#refusals.splice(0);
  }

  /** Keeps a picture of the page at this width; it must fit it, and axe must find nothing grave. */
  async look(page, name, { width, scheme = "light" }) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 900 });
    await loaded(page);
    await page.screenshot({ path: join(artefacts, `${name}-${width}.png`), fullPage: true });
    const wide = await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${name} is ${wide} px wider than ${width} px`);
    assert.deepEqual(await findings(page), [], `${name} at ${width} px, ${scheme}`);
  }

  async close() {
    await this.#context.close();
    rmSync(this.#profile, { recursive: true, force: true });
  }
}

/** Waits until nothing on the page is being loaded for the first time. */
export async function loaded(page) {
  await page.waitForFunction(() => document.querySelector("h1") && !document.querySelector(".skeleton"));
}

/** What axe holds to be serious or critical. */
async function findings(page) {
  await page.evaluate(axe.source);
  const violations = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations);
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  return grave.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} (${node.failureSummary})`).join("; ")}`);
}
