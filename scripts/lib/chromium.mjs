import { existsSync } from "node:fs";
import { ask, run } from "./run.mjs";
import { Stop } from "./say.mjs";

const places = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** The Chromium of this machine, or the one that the variable CHROMIUM names; null where there is none. */
export function chromiumPath() {
  return [process.env.CHROMIUM, ...places].find((path) => path && existsSync(path)) ?? null;
}

/** Makes sure that there is a Chromium to test the console with; on Debian root may simply install it. */
export async function installChromium(note) {
  if (chromiumPath()) return note(`already there: ${chromiumPath()}`);
  if (process.getuid?.() !== 0 || !existsSync("/etc/debian_version")) {
    throw new Stop("Chromium is needed to test the console and was not found; install it, or name its program in the variable CHROMIUM.");
  }
  const installed = await debianPackage("chromium");
  if (!installed || !chromiumPath()) throw new Stop("`apt-get install chromium` did not bring a Chromium to test the console with.");
  note(`installed: ${ask(chromiumPath(), ["--version"]) ?? chromiumPath()}`);
}

async function debianPackage(name) {
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const apt = (...args) => run("apt-get", ["-q", ...args], { show: false, allowFailure: true, env });
  await apt("update");
  return (await apt("install", "-y", "--no-install-recommends", name)).status === 0;
}
