// A Cloudflare account, asked and changed through wrangler.
import { spawnSync } from "node:child_process";
import { root, toolEnv } from "./paths.mjs";
import { run } from "./run.mjs";
import { Stop } from "./say.mjs";
import { wranglerCommand } from "./wrangler.mjs";

export class Account {
  made = "made";

  signedIn(note) {
    const { status, stdout } = wrangler(["whoami", "--json"]);
    if (status !== 0) throw new Stop("wrangler is not signed in: run `npx wrangler login`, or set CLOUDFLARE_API_TOKEN.");
    const { email, accounts = [] } = JSON.parse(stdout);
    const chosen = process.env.CLOUDFLARE_ACCOUNT_ID;
    if (accounts.length > 1 && !chosen) {
      const list = accounts.map(({ id, name }) => `  ${id}  ${name}`).join("\n");
      throw new Stop(`There is more than one account; name one by CLOUDFLARE_ACCOUNT_ID:\n${list}`);
    }
    note(accounts.find(({ id }) => id === chosen)?.name ?? accounts[0]?.name ?? email);
  }

  /** What a command lists as JSON; nothing if it fails with the words of `absent`. */
  list(args, absent) {
    const { status, stdout, said } = wrangler(args);
    if (status === 0) return JSON.parse(stdout);
    if (absent && said.includes(absent)) return [];
    throw failed(args, said);
  }

  /** Whether a command finds what it asks for; the words of `absent` say that it isn't there. */
  exists(args, absent) {
    const { status, said } = wrangler(args);
    if (status !== 0 && !said.includes(absent)) throw failed(args, said);
    return status === 0;
  }

  change(args, input) {
    const { status, said } = wrangler(args, input);
    if (status !== 0) throw failed(args, said);
  }

  async deploy(args) {
    const [program, script] = wranglerCommand();
    await run(program, [script, ...args]);
  }

  tell(text) {
    console.log(`      ${text}`);
  }
}

/** Prints what would be asked and changed in an account where nothing is there yet. */
export class DryRun {
  made = "would make";
  #printed = new Set();

  #print(args) {
    const line = ["wrangler", ...args].join(" ");
    if (!this.#printed.has(line)) console.log(`      would run: ${line}`);
    this.#printed.add(line);
  }

  signedIn(note) {
    this.#print(["whoami", "--json"]);
    note("not asked");
  }

  list(args) {
    this.#print(args);
    return [];
  }

  exists(args) {
    this.#print(args);
    return false;
  }

  change(args) {
    this.#print(args);
  }

  async deploy(args) {
    this.#print(args);
    await new Account().deploy([...args, "--dry-run"]);
  }

  tell() {}
}

function wrangler(args, input = "") {
  const [program, script] = wranglerCommand();
  const { status, stdout, stderr } = spawnSync(program, [script, ...args], { cwd: root, env: toolEnv({ NO_COLOR: "1" }), input, encoding: "utf8" });
  return { status, stdout, said: stdout + stderr };
}

function failed(args, said) {
  return new Stop(`\`wrangler ${args.join(" ")}\` failed:\n${said.trim()}`);
}
