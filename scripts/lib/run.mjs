import { spawn, spawnSync } from "node:child_process";
import { Stop } from "./say.mjs";
import { root, toolEnv } from "./paths.mjs";

/**
 * Runs a program to its end in the project's root and returns what it printed.
 * `show: false` keeps its output back and prints it only if the program fails.
 */
export function run(program, args, { show = true, env = toolEnv(), allowFailure = false } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: root, env, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    const take = (stream, out) =>
      stream.on("data", (bytes) => {
        output += bytes;
        if (show) out.write(bytes);
      });
    take(child.stdout, process.stdout);
    take(child.stderr, process.stderr);
    child.on("error", (error) => reject(new Stop(`${program} could not be started: ${error.message}.`)));
    child.on("close", (status, signal) => {
      if (status === 0 || allowFailure) return resolve({ status, output });
      if (!show) process.stderr.write(output);
      const how = signal ? `was ended by ${signal}` : `failed with status ${status}`;
      reject(new Stop(`\`${[program.split("/").pop(), ...args].join(" ")}\` ${how}.`));
    });
  });
}

/** The first line a program prints, or null where it isn't there or fails. */
export function ask(program, args, env = toolEnv()) {
  const answer = spawnSync(program, args, { cwd: root, env, encoding: "utf8" });
  return answer.status === 0 ? answer.stdout.trim().split("\n")[0] : null;
}
