// Generates text with imp and prints it as it comes.
//
//     node generate.mjs [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]
import { connect, explain, within } from "./imp.mjs";

const [target = "127.0.0.1:50051", prompt = "Once upon a time", maxTokens = "64", deadline = "30"] =
  process.argv.slice(2);

const client = connect(target);
const stream = client.Generate(
  {
    text: prompt,
    sampling: { temperature: 0 }, // a field that is not set takes the model's default; zero means zero
    stop: { max_tokens: Number(maxTokens) },
  },
  within(Number(deadline)),
);

try {
  // Leaving the loop early cancels the call, and the server frees its memory.
  for await (const response of stream) {
    if (response.event === "started") {
      console.error(`[${response.started.model}, seed ${response.started.seed}]`);
    } else if (response.event === "chunk") {
      process.stdout.write(response.chunk.text);
    } else if (response.event === "finished") {
      // The server holds text back while it may be the beginning of a stop string. The rest comes here.
      process.stdout.write(`${response.finished.text}\n`);
      console.error(`[${response.finished.reason}, ${response.finished.usage?.output_tokens} tokens]`);
    }
  }
} catch (error) {
  console.error(`\n${explain(error)}`);
  process.exitCode = 1;
} finally {
  client.close();
}
