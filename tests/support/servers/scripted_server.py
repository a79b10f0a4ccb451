"""A gRPC server whose replies a test defines, including replies that an imp server never sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, status_pb2

from imp_service.pb import admin_pb2, inference_pb2, model_pb2, tokenizer_pb2

# What a server names in the head of a reply.
INSTANCE = (("imp-instance-id", "scripted"),)
# (request, context) -> the messages of the reply; it may abort.
Script = Callable[[Any, grpc.ServicerContext], Iterator[Any]]
FILES = (inference_pb2, model_pb2, tokenizer_pb2, admin_pb2)
METHODS: dict[str, MethodDescriptor] = {
    method.name: method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, scripts: dict[str, Script], *, acknowledges: bool) -> None:
        self._scripts = {name: _acknowledging(each) for name, each in scripts.items()} if acknowledges else scripts

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        name = details.method.rpartition("/")[2]
        if name not in self._scripts:
            return None
        method, script = METHODS[name], self._scripts[name]
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(
                script, GetMessageClass(method.input_type).FromString, lambda message: message.SerializeToString()
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: next(script(request, context)),
            GetMessageClass(method.input_type).FromString,
            lambda message: message.SerializeToString(),
        )


def _acknowledging(script: Script) -> Script:
    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if ("imp-acknowledge", "1") in context.invocation_metadata():
            context.send_initial_metadata(INSTANCE)
        yield from script(request, context)

    return answer


@contextmanager
def scripted_server(
    credentials: grpc.ServerCredentials | None = None, *, acknowledges: bool = True, **scripts: Script
) -> Iterator[str]:
    """Yields the address of a server with these methods, by their short names; without credentials, in plain text.

    Unless it `acknowledges`, it is as a proxy that answers by itself.
    """
    server = grpc.server(ThreadPoolExecutor(8), handlers=[_Handlers(scripts, acknowledges=acknowledges)])
    address = "127.0.0.1:0"
    port = server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def refuse(
    context: grpc.ServicerContext, code: grpc.StatusCode, text: str, *details: Any, pushback_ms: int | None = None
) -> None:
    """Ends the call with a status and its rich details."""
    status = status_pb2.Status(code=code_pb2.Code.Value(code.name), message=text)
    for detail in details:
        status.details.add().Pack(detail)
    metadata: list[tuple[str, str | bytes]] = [("grpc-status-details-bin", status.SerializeToString())]
    if pushback_ms is not None:
        metadata.append(("grpc-retry-pushback-ms", str(pushback_ms)))
    context.set_trailing_metadata(tuple(metadata))
    context.abort(code, text)


# Of a stream that can be resumed.
RESUMABLE = inference_pb2.Origin(server="a" * 16, request="0" * 32, seed=7, created=1_700_000_000)


def resumable_story(*texts: str, n_sequences: int = 1) -> list[inference_pb2.GenerateResponse]:
    """Returns a stream with an origin. Its sequences take turns, each has these tokens, and the first ends first."""
    texts = texts or ("a", "b", "c")
    started = {"request_id": "r1", "origin": RESUMABLE, "seed": RESUMABLE.seed}
    messages = [inference_pb2.GenerateResponse(started=started)]
    for i, text in enumerate(texts):
        for index in range(n_sequences):
            chunk = inference_pb2.GenerationChunk(index=index, first_token=i, token_ids=[100 + i], text=text)
            messages.append(inference_pb2.GenerateResponse(chunk=chunk))
    for index in range(n_sequences):
        finished = inference_pb2.GenerationFinished(index=index, reason=2)
        if index == n_sequences - 1:
            finished.usage.prompt_tokens, finished.usage.output_tokens = 3, len(texts) * n_sequences
        # Before the last tokens of the others.
        messages.insert(len(messages) - (n_sequences - 1 - index), inference_pb2.GenerateResponse(finished=finished))
    return messages


def behind(
    messages: Sequence[inference_pb2.GenerateResponse], resume: inference_pb2.Resume
) -> list[inference_pb2.GenerateResponse]:
    """Returns what a server sends of a stream to a caller that has some of it."""
    told = [len(each.token_ids) for each in resume.sequences]
    started = inference_pb2.GenerateResponse()
    started.CopyFrom(messages[0])
    started.started.resumed_tokens = sum(told)
    rest = [started]
    for each in messages[1:]:
        index = each.chunk.index if each.HasField("chunk") else each.finished.index
        has_it = each.chunk.first_token < told[index] if each.HasField("chunk") else resume.sequences[index].finished
        rest += [] if has_it else [each]
    return rest


def story(*texts: str, seed: int = 7, prompt_tokens: int = 3) -> list[inference_pb2.GenerateResponse]:
    """Returns a Generate stream of one sequence, with one token for each text, that ends at the token limit."""
    started = inference_pb2.GenerationStarted(request_id="r1", model="demo", seed=seed, prompt_tokens=prompt_tokens)
    messages = [inference_pb2.GenerateResponse(started=started)]
    for i, text in enumerate(texts):
        chunk = inference_pb2.GenerationChunk(first_token=i, token_ids=[100 + i], text=text)
        messages.append(inference_pb2.GenerateResponse(chunk=chunk))
    finished = inference_pb2.GenerationFinished(reason=2)
    finished.usage.prompt_tokens, finished.usage.output_tokens = prompt_tokens, len(texts)
    return [*messages, inference_pb2.GenerateResponse(finished=finished)]
