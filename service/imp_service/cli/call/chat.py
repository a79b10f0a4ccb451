"""imp call chat: one message, or a conversation, with a served model."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.call.generate import most_tokens, write_answer
from imp_service.cli.call.images import add_parts, media_of
from imp_service.cli.call.recording import add_record_option, recording_of
from imp_service.cli.conversation.dialogue import ChatAnswer, Dialogue, TurnFailed
from imp_service.cli.conversation.hold import hold_conversation, say_once
from imp_service.cli.conversation.options import add_conversation_options
from imp_service.cli.failure import CommandError
from imp_service.cli.options.connection import connect
from imp_service.cli.options.generation import add_generation_options, given_options, request_of, set_options
from imp_service.cli.options.images import add_image_option, read_image, read_images
from imp_service.cli.terminal import answer_writer, is_interactive, join_prompt, read_prompt

if TYPE_CHECKING:
    from imp_service.client.connection import Connection
    from imp_service.client.failure import CallFailure
    from imp_service.pb.inference_pb2 import GenerateRequest


# After one of these errors no other message can be answered.
_FINAL_CODES = ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "NOT_FOUND")
_FINAL_REASONS = ("NO_CHAT_TEMPLATE", "TEMPLATE_INVALID")
POLL_SECONDS = 0.5


def configure_chat(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="MESSAGE", nargs="*", help="one message, in one or several words; - reads it from stdin"
    )
    add_image_option(parser)
    add_conversation_options(parser)
    add_generation_options(parser)
    add_record_option(parser)
    parser.set_defaults(run_method=_chat)


def _chat(arguments: Namespace) -> int:

    request = request_of(arguments)
    if request.WhichOneof("prompt") not in (None, "chat") or request.num_sequences > 1:
        raise CommandError("USAGE", "--fields: a chat takes no prompt except `chat`, and no num_sequences above 1")
    if arguments.record is not None and not arguments.words:
        raise CommandError("USAGE", "--record: expected MESSAGE too, as an argument: a file has one answer")
    waits = not arguments.words and is_interactive()
    with connect(arguments) as connection:
        responder = _ServerResponder(connection, request, arguments, waits=waits)
        names = arguments.images
        images = read_images(names, arguments.words, media_of(connection).request_bytes) if names else []
        dialogue = Dialogue(arguments.system, given_options(request, arguments), next_images=images)
        if arguments.words:
            say_once(responder, dialogue, read_prompt(join_prompt(arguments.words)), arguments)
            return 0
        if waits:
            responder.require_server()
        hold_conversation(responder, dialogue, arguments)
    return 0


class _ServerResponder:
    """Answers with a served model. With `waits`, asks again when an unreachable server is back."""

    def __init__(
        self, connection: "Connection", request: "GenerateRequest", arguments: Namespace, *, waits: bool
    ) -> None:
        self._connection = connection
        self._request = request
        self._arguments = arguments
        self._is_json, self._is_verbose = arguments.json, arguments.verbose
        self._writer = answer_writer(plain=arguments.plain or arguments.json or request.HasField("constraint"))
        self._waits = waits

    def answer(self, dialogue: Dialogue) -> ChatAnswer:
        from imp_service.cli.call.streamed_answer import StreamedAnswer
        from imp_service.client.failure import CallFailure

        request = self._request_of(dialogue)
        is_announced = False
        while True:
            answer = StreamedAnswer(most_tokens=most_tokens(request))
            try:
                write_answer(
                    self._connection,
                    request,
                    is_json=self._is_json,
                    verbose=self._is_verbose,
                    answer=answer,
                    writer=self._writer,
                    recording=recording_of(self._arguments, self._connection, request),
                )
            except KeyboardInterrupt:
                return ChatAnswer(answer.text, is_stopped=True)
            except CallFailure as failure:
                if not (self._waits and failure.code == "UNAVAILABLE"):
                    raise _turn_failed(failure) from failure
                if not is_announced:
                    print(f"— waiting for the server: {failure.message}. Ctrl-C stops waiting.", file=sys.stderr)
                    is_announced = True
            else:
                return ChatAnswer(answer.text, is_cut=answer.reason == "context_full")
            try:
                self._wait_for_server()
            except KeyboardInterrupt:
                return ChatAnswer("", is_stopped=True)

    def require_server(self) -> None:
        """Raises if the server cannot be reached, before the first message is typed."""
        from imp_service.client.failure import CallFailure

        try:
            self._is_serving()
        except CallFailure as failure:
            if failure.code == "UNAVAILABLE":
                raise

    def read_image(self, name: str) -> bytes:
        return read_image(name, media_of(self._connection).request_bytes)

    def check_options(self, options: dict[str, float]) -> None:
        from imp_service.pb.inference_pb2 import GenerateRequest

        set_options(GenerateRequest(), options)

    def default_sampling(self) -> Sequence[tuple[str, str, str]]:
        from imp_service.cli.sampling_text import sampling_rows
        from imp_service.pb.model_pb2 import GetModelInfoRequest
        from imp_service.pb.model_pb2_grpc import ModelServiceStub

        info = self._connection.unary(ModelServiceStub(self._connection.channel).GetModelInfo, GetModelInfoRequest())
        return sampling_rows(info.default_sampling, info.default_sampling_origins)

    def _request_of(self, dialogue: Dialogue) -> "GenerateRequest":
        from imp_service.pb.inference_pb2 import GenerateRequest

        request = GenerateRequest()
        request.CopyFrom(self._request)
        set_options(request, dialogue.options)
        if dialogue.system is not None:
            request.chat.messages.add(role="system", content=dialogue.system)
        for turn in dialogue.turns:
            message = request.chat.messages.add(role=turn.role)
            if turn.images:
                add_parts(message.parts, turn.images, turn.content)
            else:
                message.content = turn.content
        return request

    def _wait_for_server(self) -> None:
        """Waits until the server serves, or fails with another status than UNAVAILABLE."""
        from imp_service.client.failure import CallFailure

        while True:
            time.sleep(POLL_SECONDS)
            try:
                if self._is_serving():
                    return
            except CallFailure as failure:
                if failure.code != "UNAVAILABLE":
                    return

    def _is_serving(self) -> bool:
        from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
        from grpc_health.v1.health_pb2_grpc import HealthStub

        request = HealthCheckRequest(service="imp.v1.InferenceService")
        check = HealthStub(self._connection.channel).Check  # type: ignore[attr-defined]  # the package has no types
        status: int = self._connection.unary(check, request).status
        return status == HealthCheckResponse.SERVING


def _turn_failed(failure: "CallFailure") -> Exception:
    if failure.code in _FINAL_CODES or failure.reason in _FINAL_REASONS:
        return failure
    return TurnFailed(failure, is_full=failure.reason == "CONTEXT_TOO_LONG")
