// What both Node examples share: the services from the .proto files, and failures in words.
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

// The files are read at run time, so there is no code to generate. Long numbers (seeds) become strings, enums their
// names, and unset fields their defaults. A field with the oneof's name has the name of the member that is set:
// response.event === "chunk".
const definition = protoLoader.loadSync(["imp/v1/inference.proto", "rich_status.proto"], {
  includeDirs: [here("../../proto"), here("..")],
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});
const { InferenceService } = grpc.loadPackageDefinition(definition).imp.v1;

// TARGET is host:port or unix:///path.
export const connect = (target) => new InferenceService(target, grpc.credentials.createInsecure());

// A call without a deadline may wait forever. When the deadline passes, the server stops its work, too.
export const within = (seconds) => ({ deadline: Date.now() + seconds * 1000 });

// Whether the server went away, so that it, when it is back, or another one goes on with the stream.
export const canGoOn = (error) =>
  error.code === grpc.status.UNAVAILABLE || ["DEVICE_FAULT", "QUEUE_FULL"].includes(detailsOf(error).reason);

// "OUT_OF_RANGE CONTEXT_TOO_LONG: …", and a line for each field that is wrong. Programs test the reason.
export function explain(error) {
  const details = detailsOf(error);
  const head = [grpc.status[error.code], details.reason].filter(Boolean).join(" ");
  return [`${head}: ${error.details}`, ...details.violations.map((v) => `  ${v.field}: ${v.description}`)].join("\n");
}

function detailsOf(error) {
  const details = { reason: "", violations: [] };
  const [packed] = error.metadata?.get("grpc-status-details-bin") ?? [];
  for (const { type_url, value } of packed ? unpack("google.rpc.Status", packed).details : []) {
    const type = type_url.split("/").pop();
    if (type === "google.rpc.ErrorInfo") details.reason = unpack(type, value).reason;
    if (type === "google.rpc.BadRequest") details.violations = unpack(type, value).field_violations;
  }
  return details;
}

const unpack = (type, bytes) => definition[type].deserialize(bytes);
