/** Splits a script into its statements; knows strings, quoted names, comments and the bodies of triggers. */
export function splitSql(script) {
  const tokens = /'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|--[^\n]*|\/\*[\s\S]*?\*\/|[A-Za-z_]\w*|;|\s+|[\s\S]/g;
  const statements = [];
  let statement = "";
  let words = [];
  let depth = 0;
  for (const [token] of script.matchAll(tokens)) {
    if (token.startsWith("--") || token.startsWith("/*")) continue;
    const word = token.toUpperCase();
    if (/^[A-Z]/.test(word)) words.push(word);
    const inTrigger = words[0] === "CREATE" && words.slice(1, 4).includes("TRIGGER");
    if (inTrigger && (word === "BEGIN" || word === "CASE")) depth += 1;
    if (inTrigger && word === "END") depth -= 1;
    if (token === ";" && depth === 0) {
      if (statement.trim()) statements.push(statement.trim());
      statement = "";
      words = [];
    } else {
      statement += token;
    }
  }
  if (statement.trim()) statements.push(statement.trim());
  return statements;
}
