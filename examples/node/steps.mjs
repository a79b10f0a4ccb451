// Generates one token per call. The program sees each token and may choose another.
//
//     node steps.mjs [TARGET [PROMPT [STEPS]]]
import { promisify } from "node:util";
import { connect, explain, within } from "./imp.mjs";

const [target = "127.0.0.1:50051", prompt = "Once upon a time", steps = "16"] = process.argv.slice(2);

const client = connect(target);
const call = (method, request) => promisify(client[method].bind(client))(request, within(30));

try {
  // Opens a session: the server evaluates the prompt once and keeps it in its cache.
  const opened = await call("Prefill", { text: prompt, sampling: { temperature: 0 } });
  const session_id = opened.session_id;
  let output = opened.output;
  process.stdout.write(output.text);
  for (let i = 1; i < Number(steps) && !output.eos; i++) {
    // No token_ids: evaluates the token that was sampled last. `position` is the number of tokens that the session has.
    // With it, a step that is sent again after a lost reply is not evaluated twice.
    const reply = await call("DecodeStep", { steps: [{ session_id, position: output.position }] });
    const [result] = reply.results; // one for each session of the batch
    if (result.result === "error") throw new Error(`${result.error.reason}: ${result.error.message}`);
    output = result.output;
    process.stdout.write(output.text);
  }
  console.log();

  // A second writer of the session is refused, because its position is out of date.
  await call("Prefill", { session_id, token_ids: { ids: [1] }, position: 1 }).catch((error) =>
    console.error(explain(error)),
  );
  // Frees the cache now instead of after the session's time to live.
  const { released } = await call("ReleaseSession", { session_id });
  console.error(`[${output.position} tokens held, released: ${released}]`);
} catch (error) {
  console.error(`\n${error.metadata ? explain(error) : error.message}`);
  process.exitCode = 1;
} finally {
  client.close();
}
