"""imp call chat: one message, or a conversation, with a served model."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.call.generate import write_answer
from imp_service.cli.conversation import ChatAnswer, Conversation, Turn, TurnFailed, add_conversation_options
from imp_service.cli.failure import CommandError
from imp_service.cli.options.connection import connect
from imp_service.cli.options.generation import add_generation_options, request_of

if TYPE_CHECKING:
    from imp_service.client import CallFailure, Connection
    from imp_service.pb.inference_pb2 import GenerateRequest


# After one of these errors no other message can be answered.
_FINAL_CODES = ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "NOT_FOUND")
_FINAL_REASONS = ("NO_CHAT_TEMPLATE", "TEMPLATE_INVALID")
POLL_SECONDS = 0.5


def configure_chat(parser: ArgumentParser) -> None:
    parser.add_argument(
        "prompt", metavar="MESSAGE", nargs="*", help="one message, in one or several words; - reads it from stdin"
    )
    add_conversation_options(parser)
    add_generation_options(parser)
    parser.set_defaults(run_method=_chat)


def _chat(arguments: Namespace) -> int:
    from imp_service.cli.terminal import HINT, is_interactive, join_prompt, read_prompt, typed_messages

    request = request_of(arguments)
    if request.WhichOneof("prompt") not in (None, "chat") or request.num_sequences > 1:
        raise CommandError("USAGE", "--fields: a chat has one answer, and no prompt but `chat`")
    if arguments.system is not None:
        request.chat.messages.add(role="system", content=arguments.system)
    is_conversation = not arguments.prompt and is_interactive()
    with connect(arguments) as connection:
        responder = _ServerResponder(connection, request, is_json=arguments.json, waits=is_conversation)
        conversation = Conversation(responder, drops_oldest=arguments.drop_oldest, is_interactive=is_conversation)
        if arguments.prompt:
            conversation.say(read_prompt(join_prompt(arguments.prompt)))
            return 0
        if is_conversation:
            responder.require_server()
            print(HINT, file=sys.stderr, flush=True)
        conversation.hold(typed_messages())
    return 0


class _ServerResponder:
    """Answers with a served model. With `waits`, asks again when an unreachable server is back."""

    def __init__(self, connection: "Connection", request: "GenerateRequest", *, is_json: bool, waits: bool) -> None:
        self._connection = connection
        self._request = request
        self._is_json = is_json
        self._waits = waits

    def answer(self, turns: Sequence[Turn]) -> ChatAnswer:
        from imp_service.cli.call.streamed_answer import StreamedAnswer
        from imp_service.client import CallFailure

        request = self._request_of(turns)
        is_announced = False
        while True:
            answer = StreamedAnswer()
            try:
                write_answer(self._connection, request, is_json=self._is_json, answer=answer)
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
        from imp_service.client import CallFailure

        try:
            self._is_serving()
        except CallFailure as failure:
            if failure.code == "UNAVAILABLE":
                raise

    def _request_of(self, turns: Sequence[Turn]) -> "GenerateRequest":
        from imp_service.pb.inference_pb2 import GenerateRequest

        request = GenerateRequest()
        request.CopyFrom(self._request)
        for turn in turns:
            request.chat.messages.add(role=turn.role, content=turn.content)
        return request

    def _wait_for_server(self) -> None:
        """Waits until the server serves, or fails with another status than UNAVAILABLE."""
        from imp_service.client import CallFailure

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
