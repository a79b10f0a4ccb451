// Asks a model that reads images about pictures, and prints its answer as it comes.
//
//     node look.mjs TARGET QUESTION PICTURE…
import { readFileSync } from "node:fs";
import { connect, explain, within } from "./imp.mjs";

const [target, question, ...pictures] = process.argv.slice(2);

// PNG, JPEG, WebP or GIF. The server reads no files and fetches no addresses: the bytes are part of the request.
const parts = pictures.map((path) => ({ image: { encoded: readFileSync(path) } }));
const client = connect(target);
const stream = client.Generate(
  {
    chat: { messages: [{ role: "user", parts: [...parts, { text: question }] }] },
    sampling: { temperature: 0 },
    stop: { max_tokens: 256 },
  },
  within(120),
);

try {
  for await (const { event, started, chunk, finished } of stream) {
    // A picture may have several spans, one for each of its tiles.
    if (event === "started") console.error(`[${started.media.reduce((n, span) => n + span.tokens, 0)} tokens of pictures]`);
    if (event === "chunk") process.stdout.write(chunk.text);
    if (event === "finished") process.stdout.write(`${finished.text}\n`);
  }
} catch (error) {
  console.error(explain(error));
  process.exitCode = 1;
} finally {
  client.close();
}
