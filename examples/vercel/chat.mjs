// Asks imp through Vercel's AI SDK and prints the answer as it comes.
//
//     node chat.mjs [BASE_URL [PROMPT [MAX_TOKENS [SECONDS]]]]
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, streamText } from "ai";

const [baseURL = "http://127.0.0.1:8000/v1", prompt = "Who are you?", maxTokens = "64", seconds = "30"] =
  process.argv.slice(2);

const imp = createOpenAICompatible({
  name: "imp",
  baseURL,
  apiKey: process.env.OPENAI_API_KEY ?? "none",
  includeUsage: true,
});

try {
  const { data } = await (await fetch(`${baseURL}/models`)).json();
  const result = streamText({
    model: imp(data[0].id),
    prompt,
    temperature: 0, // a field that is not set takes the model's default; zero means zero
    maxOutputTokens: Number(maxTokens),
    maxRetries: 0,
    onError: () => {}, // told below
    providerOptions: { imp: { time_limit: Number(seconds) } }, // a field that only imp has
  });
  // Leaving the loop early cancels the call, and the server frees its memory.
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") process.stdout.write(part.text);
  }
  console.error(`\n[${await result.finishReason}]`);
  console.error(`[${(await result.usage).outputTokens} tokens]`);
  process.stdout.write("\n");
} catch (error) {
  if (!APICallError.isInstance(error) && !error.cause) throw error;
  if (error.responseBody) {
    const { code, message } = JSON.parse(error.responseBody).error;
    console.error(`${code}: ${message}`); // programs test the code
  } else {
    console.error((error.cause ?? error).message); // the server cannot be reached
  }
  process.exitCode = 1;
}
