// Generates text with imp and prints it as it comes. If the server goes away, the text goes on when it is back.
//
//     node generate.mjs [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]
import { setTimeout } from "node:timers/promises";
import { canGoOn, connect, explain, within } from "./imp.mjs";

const [target = "127.0.0.1:50051", prompt = "Once upon a time", maxTokens = "64", deadline = "30"] =
  process.argv.slice(2);

const client = connect(target);
const request = {
  text: prompt,
  sampling: { temperature: 0 }, // a field that is not set takes the model's default; zero means zero
  stop: { max_tokens: Number(maxTokens) },
};
const options = within(Number(deadline));
let failures = 0; // since the last token

async function show() {
  // Leaving the loop early cancels the call, and the server frees its memory.
  for await (const response of client.Generate(request, options)) {
    if (response.event === "started" && !request.resume) {
      console.error(`[${response.started.model}, seed ${response.started.seed}]`);
      // What the next call needs, should this one break: where the stream comes from, and its tokens so far.
      const { origin } = response.started;
      if (origin) request.resume = { origin, sequences: [{ token_ids: [] }] };
    } else if (response.event === "chunk") {
      request.resume?.sequences[0].token_ids.push(...response.chunk.token_ids);
      failures = 0;
      process.stdout.write(response.chunk.text);
    } else if (response.event === "finished") {
      // The server holds text back while it may be the beginning of a stop string. The rest comes here.
      process.stdout.write(`${response.finished.text}\n`);
      console.error(`[${response.finished.reason}, ${response.finished.usage?.output_tokens} tokens]`);
    }
  }
}

try {
  for (let isOver = false; !isOver; ) {
    try {
      await show();
      isOver = true;
    } catch (error) {
      if (!request.resume || !canGoOn(error) || ++failures > 6) throw error;
      await setTimeout(100 * 2 ** failures);
    }
  }
} catch (error) {
  console.error(`\n${explain(error)}`);
  process.exitCode = 1;
} finally {
  client.close();
}
