// Asks imp through Anthropic's client and prints the answer as it comes.
//
//     node chat.mjs [BASE_URL [PROMPT [MAX_TOKENS [SECONDS]]]]
import Anthropic from "@anthropic-ai/sdk";

const [baseURL = "http://127.0.0.1:8000", prompt = "Who are you?", maxTokens = "64", seconds = "30"] =
  process.argv.slice(2);

// The client wants a key in any case; imp asks for one only if its settings have tokens.
const client = new Anthropic({ baseURL, apiKey: process.env.ANTHROPIC_API_KEY ?? "none" });

try {
  const stream = client.messages.stream({
    model: "", // the served model
    messages: [{ role: "user", content: prompt }],
    max_tokens: Number(maxTokens),
    temperature: 0, // a field that is not set takes the model's default; zero means zero
    time_limit: Number(seconds), // a field that only imp has
  });
  // Leaving the loop early cancels the call, and the server frees its memory.
  for await (const event of stream) {
    if (event.type === "content_block_delta" && event.delta.type === "text_delta") {
      process.stdout.write(event.delta.text);
    }
  }
  const { stop_reason, usage } = await stream.finalMessage();
  console.error(`\n[${stop_reason}]\n[${usage.output_tokens} tokens]`);
  process.stdout.write("\n");
} catch (error) {
  if (!(error instanceof Anthropic.APIError)) throw error;
  // Programs test the type. A server that cannot be reached gives none.
  const told = error.error?.error;
  console.error(told ? `${told.type}: ${told.message}` : error.message);
  process.exitCode = 1;
}
