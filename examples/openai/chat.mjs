// Asks imp through OpenAI's client and prints the answer as it comes.
//
//     node chat.mjs [BASE_URL [PROMPT [MAX_TOKENS [SECONDS]]]]
import OpenAI from "openai";

const [baseURL = "http://127.0.0.1:8000/v1", prompt = "Who are you?", maxTokens = "64", seconds = "30"] =
  process.argv.slice(2);

// The client wants a key in any case; imp asks for one only if its settings have tokens.
const client = new OpenAI({ baseURL, apiKey: process.env.OPENAI_API_KEY ?? "none" });

try {
  const models = await client.models.list();
  const stream = await client.chat.completions.create({
    model: models.data[0].id,
    messages: [{ role: "user", content: prompt }],
    temperature: 0, // a field that is not set takes the model's default; zero means zero
    max_completion_tokens: Number(maxTokens),
    stream: true,
    stream_options: { include_usage: true },
    time_limit: Number(seconds), // a field that only imp has
  });
  // Leaving the loop early cancels the call, and the server frees its memory.
  for await (const { choices, usage } of stream) {
    for (const { delta, finish_reason } of choices) {
      process.stdout.write(delta.content ?? "");
      if (finish_reason) console.error(`\n[${finish_reason}]`);
    }
    if (usage) console.error(`[${usage.completion_tokens} tokens]`); // in the last chunk, which has no choices
  }
  process.stdout.write("\n");
} catch (error) {
  if (!(error instanceof OpenAI.APIError)) throw error;
  // Programs test the code. A server that cannot be reached gives none.
  console.error(error.code ? `${error.code}: ${error.message}` : error.message);
  process.exitCode = 1;
}
