// Embeds texts through OpenAI's client and prints how similar each is to the first. It needs a server of a model that
// makes vectors.
//
//     node embed.mjs [BASE_URL [TEXT ...]]
import OpenAI from "openai";

const [baseURL = "http://127.0.0.1:8000/v1", ...given] = process.argv.slice(2);
const input = given.length ? given : ["It is cold today.", "The weather is freezing.", "He drove to the stadium."];
const client = new OpenAI({ baseURL, apiKey: process.env.OPENAI_API_KEY ?? "none" });

try {
  const models = await client.models.list();
  const { data } = await client.embeddings.create({ model: models.data[0].id, input });
  const first = data[0].embedding;
  for (const { embedding, index } of data) {
    const similarity = embedding.reduce((sum, value, i) => sum + value * first[i], 0); // vectors have length 1
    console.log(`${similarity.toFixed(4)}  ${input[index]}`);
  }
} catch (error) {
  if (!(error instanceof OpenAI.APIError)) throw error;
  console.error(error.code ? `${error.code}: ${error.message}` : error.message);
  process.exitCode = 1;
}
