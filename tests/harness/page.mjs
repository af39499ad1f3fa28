// The commands of a page of documentation, as a reader would copy them.
import { readFileSync } from "node:fs";
import { inRoot } from "../../scripts/lib/paths.mjs";

/** Every fenced block of a page as {language, name, text}; the name is what follows the language. */
export function blocks(page) {
  const fenced = readFileSync(inRoot(page), "utf8").matchAll(/^```(\w+)(?: ([\w-]+))?\n(.*?)^```$/gms);
  return [...fenced].map(([, language, name, text]) => ({ language, name, text }));
}
