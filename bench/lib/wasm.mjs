// How large the built Worker is, and how long it takes to come to life.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { Miniflare, NoOpLog } from "miniflare";
import { inRoot } from "../../scripts/lib/paths.mjs";
import { median } from "./measure.mjs";

/** Instances a request makes. */
const many = 40;

/** Instances of the module, with imports that do nothing: `POST` says how many. */
const maker = `
  import module from "./index_bg.wasm";
  const imports = {};
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    (imports[from] ??= {})[name] = kind === "tag" ? WebAssembly.JSTag : () => {};
  }
  export default {
    async fetch(request) {
      const number = Number(await request.text());
      for (let i = 0; i < number; i++) new WebAssembly.Instance(module, imports);
      return new Response("made");
    },
  };`;

export async function wasm() {
  const parts = ["index.js", "index_bg.wasm"].map((name) => {
    const bytes = readFileSync(inRoot("build", name));
    return { name, raw: bytes.length, gzipped: gzipSync(bytes, { level: 9 }).length };
  });
  const gzipped = parts.reduce((sum, part) => sum + part.gzipped, 0);
  return { parts, gzipped, instantiationMs: await instantiation(), compilationMs: compilation() };
}

/** V8's first compilation of the module; the functions of a call are compiled when they are first used. */
function compilation() {
  const bytes = readFileSync(inRoot("build/index_bg.wasm"));
  return median(Array.from({ length: 9 }, () => timed(() => new WebAssembly.Module(bytes))));
}

/** One instance in workerd: its clock stands still while a program runs, so many are timed from outside. */
async function instantiation() {
  const mf = new Miniflare({
    log: new NoOpLog(),
    cf: false,
    modules: [
      { type: "ESModule", path: inRoot("build/instances.mjs"), contents: maker },
      { type: "CompiledWasm", path: inRoot("build/index_bg.wasm") },
    ],
    modulesRoot: inRoot("build"),
    compatibilityDate: "2026-07-01",
  });
  try {
    const url = (await mf.ready).href;
    const make = async (number) => {
      const began = performance.now();
      const answer = await fetch(url, { method: "POST", body: String(number) });
      if (!answer.ok) throw new Error(`instances: ${answer.status} ${await answer.text()}`);
      return performance.now() - began;
    };
    await make(1);
    const each = [];
    for (let i = 0; i < 7; i++) each.push(((await make(many + 1)) - (await make(1))) / many);
    return median(each);
  } finally {
    await mf.dispose();
  }
}

function timed(work) {
  const began = performance.now();
  work();
  return performance.now() - began;
}
