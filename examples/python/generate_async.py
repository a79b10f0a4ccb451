"""Generates two texts at once with asyncio. Cancelling a task cancels its call.

    python generate_async.py [TARGET [MAX_TOKENS [DEADLINE_SECONDS]]]

Needs imp's package, of which it uses only the generated messages: `pip install .` in imp's sources, or stubs of your
own (proto/README.md).
"""

import asyncio
import sys

import grpc
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status
from grpc_status.rpc_status import GRPC_DETAILS_METADATA_KEY

from imp_service.pb import inference_pb2, inference_pb2_grpc

PROMPTS = ("Once upon a time", "The weather today")


async def generate(stub: inference_pb2_grpc.InferenceServiceStub, prompt: str, max_tokens: int, deadline: float) -> str:
    request = inference_pb2.GenerateRequest(text=prompt)
    request.sampling.temperature = 0
    request.stop.max_tokens = max_tokens
    text = ""
    # Leaving this loop early (by break, an exception or a cancelled task) cancels the call. The server frees its memory
    # within one step.
    async for response in stub.Generate(request, timeout=deadline):
        text += response.chunk.text + response.finished.text  # both are empty in a message of another kind
    return text


def reason(error: grpc.aio.AioRpcError) -> str:
    """Returns the reason of a failure. A program may repeat a call after QUEUE_FULL, but not after CONTEXT_TOO_LONG."""
    info = error_details_pb2.ErrorInfo()
    for key, value in error.trailing_metadata():
        if key == GRPC_DETAILS_METADATA_KEY:
            any(detail.Unpack(info) for detail in Status.FromString(value).details)
    return info.reason


async def main(target: str = "127.0.0.1:50051", max_tokens: str = "32", deadline: str = "30") -> int:
    async with grpc.aio.insecure_channel(target) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        # One channel carries any number of calls; the server batches those that run together.
        calls = [generate(stub, prompt, int(max_tokens), float(deadline)) for prompt in PROMPTS]
        results = await asyncio.gather(*calls, return_exceptions=True)
    for prompt, result in zip(PROMPTS, results, strict=True):
        if isinstance(result, grpc.aio.AioRpcError):
            print(f"{prompt!r}: {result.code().name} {reason(result)}: {result.details()}", file=sys.stderr)
        elif isinstance(result, BaseException):
            raise result
        else:
            print(f"{prompt}{result}\n")
    return 1 if any(isinstance(result, BaseException) for result in results) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
