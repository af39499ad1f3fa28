// Imported first by every script, so that an old Node.js gets a sentence and not a syntax error.
const oldest = 20;
if (Number(process.versions.node.split(".")[0]) < oldest) {
  console.error(`\nsluice: Node.js ${oldest} or newer is needed and this is ${process.version}; get it from https://nodejs.org/.`);
  process.exit(1);
}
