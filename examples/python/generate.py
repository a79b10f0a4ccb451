"""Generates text with imp and prints it as it comes.

    python generate.py [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]

TARGET is host:port or unix:///path. Needs imp's package, of which it uses only the generated messages: `pip install .`
in imp's sources, or stubs of your own (proto/README.md).
"""

import sys

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from imp_service.pb import inference_pb2, inference_pb2_grpc, types_pb2


def generate(target: str, prompt: str, max_tokens: int, deadline: float) -> None:
    request = inference_pb2.GenerateRequest(text=prompt)
    # A field that is not set takes the model's default; zero means zero.
    request.sampling.temperature = 0
    request.stop.max_tokens = max_tokens

    with grpc.insecure_channel(target) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        # The deadline travels with the call: when it passes, the server stops its work, too. It also stops if the call
        # is cancelled or this process ends.
        for response in stub.Generate(request, timeout=deadline):
            # One of started, chunk, finished; a kind that is none of these comes from a newer server.
            if response.HasField("started"):
                print(f"[{response.started.model}, seed {response.started.seed}]", file=sys.stderr)
            elif response.HasField("chunk"):
                print(response.chunk.text, end="", flush=True)
            elif response.HasField("finished"):
                # The server holds text back while it may be the beginning of a stop string. The rest comes here.
                print(response.finished.text)
                reason = types_pb2.FinishReason.Name(response.finished.reason)
                print(f"[{reason}, {response.finished.usage.output_tokens} tokens]", file=sys.stderr)


def explain(error: grpc.RpcError) -> str:
    """Returns the code, the reason (which programs test), and every field that is wrong."""
    lines = [f"{error.code().name}: {error.details()}"]
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            lines[0] = f"{error.code().name} {info.reason}: {error.details()}"
        elif detail.Unpack(bad):
            lines += [f"  {v.field}: {v.description}" for v in bad.field_violations]
    return "\n".join(lines)


def main(target="127.0.0.1:50051", prompt="Once upon a time", max_tokens="64", deadline="30") -> int:
    try:
        generate(target, prompt, int(max_tokens), float(deadline))
    except grpc.RpcError as error:
        print(f"\n{explain(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
