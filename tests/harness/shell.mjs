// Runs a line of shell as it stands in the documentation.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A shell whose curl tells the status: `const shell = startShell(); const {status, text, body} = await shell.curl(line, env)`. */
export function startShell() {
  const home = mkdtempSync(join(tmpdir(), "sluice-shell-"));
  writeFileSync(join(home, ".curlrc"), 'write-out = "\\n%{http_code}"\nmax-time = 30\nsilent\nshow-error\nnoproxy = "*"\n');
  return {
    async curl(line, env) {
      const { code, output } = await run("sh", ["-c", line], { ...process.env, CURL_HOME: home, ...env });
      if (code !== 0) throw new Error(`${line}\nended with ${code}: ${output}`);
      const cut = output.lastIndexOf("\n");
      const text = output.slice(0, cut);
      return { status: Number(output.slice(cut + 1)), text, body: parsed(text) };
    },
    stop: () => rmSync(home, { recursive: true, force: true }),
  };
}

/** A program run to its end, or for `timeout` ms, without blocking the gateway beside it: {code, output}; no code: it was ended. */
export function run(program, args, env = process.env, input, timeout) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { env, timeout, stdio: ["pipe", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => (output += bytes));
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, output }));
    child.stdin.end(input);
  });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
