"""imp call generate and imp call chat: text from a server, as it comes."""

import sys
from argparse import ArgumentParser, Namespace
from contextlib import closing
from typing import TYPE_CHECKING

from imp_service.cli.connection_options import connect
from imp_service.cli.failure import CommandError
from imp_service.cli.generation_options import add_generation_options, request_of

if TYPE_CHECKING:
    from imp_service.cli.streamed_answer import StreamedAnswer
    from imp_service.client import Connection
    from imp_service.client.connection import Replies
    from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse


def configure_generate(parser: ArgumentParser) -> None:
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="?", help="the text to continue; - reads it from stdin; none: in --fields"
    )
    add_generation_options(parser)
    parser.set_defaults(act=_generate)


def configure_chat(parser: ArgumentParser) -> None:
    parser.add_argument("prompt", metavar="MESSAGE", nargs="?", help="one message; - reads it from stdin")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation begins")
    add_generation_options(parser)
    parser.set_defaults(act=_chat)


def _generate(arguments: Namespace) -> int:
    from imp_service.cli.terminal import AnswerWriter, is_prompt_shown, read_prompt

    request = request_of(arguments)
    if (arguments.prompt is None) == (request.WhichOneof("prompt") is None):
        raise CommandError("USAGE", "PROMPT: expected one, as an argument or in --fields")
    if arguments.prompt is not None:
        request.text = read_prompt(arguments.prompt)
        if is_prompt_shown(arguments.prompt) and not arguments.json:
            AnswerWriter(sys.stderr).write(request.text)
    with connect(arguments) as connection:
        _answer(connection, request, is_json=arguments.json)
    return 0


def _chat(arguments: Namespace) -> int:
    from imp_service.cli.terminal import read_prompt
    from imp_service.cli.typed_lines import HINT, is_interactive, typed_lines

    request = request_of(arguments)
    if request.WhichOneof("prompt") not in (None, "chat") or request.num_sequences > 1:
        raise CommandError("USAGE", "--fields: a chat has one answer, and no prompt but `chat`")
    if arguments.system is not None:
        request.chat.messages.add(role="system", content=arguments.system)
    if arguments.prompt is None and is_interactive():
        print(HINT, file=sys.stderr, flush=True)
    turns = typed_lines() if arguments.prompt is None else [read_prompt(arguments.prompt)]
    with connect(arguments) as connection:
        for turn in turns:
            request.chat.messages.add(role="user", content=turn)
            answer = _turn(connection, request, is_json=arguments.json, has_more=arguments.prompt is None)
            request.chat.messages.add(role="assistant", content=answer.text)
    return 0


def _turn(connection: "Connection", request: "GenerateRequest", *, is_json: bool, has_more: bool) -> "StreamedAnswer":
    """One turn. Ctrl-C ends an answer and keeps it where a person has more to say; else it ends the command."""
    from imp_service.cli.streamed_answer import StreamedAnswer
    from imp_service.cli.typed_lines import is_interactive

    answer = StreamedAnswer()
    try:
        _answer(connection, request, is_json=is_json, answer=answer)
    except KeyboardInterrupt:
        if not (has_more and is_interactive()):
            raise
    return answer


def _answer(
    connection: "Connection", request: "GenerateRequest", *, is_json: bool, answer: "StreamedAnswer | None" = None
) -> None:
    from imp_service.cli.streamed_answer import StreamedAnswer
    from imp_service.pb.inference_pb2_grpc import InferenceServiceStub

    answer = answer or StreamedAnswer(max(1, request.num_sequences))
    responses = connection.stream(InferenceServiceStub(connection.channel).Generate, request)
    with closing(responses):
        if is_json:
            answer.write_json(responses)
        else:
            _write_text(answer, responses)
        _warn_of_approximations(responses)


def _write_text(answer: "StreamedAnswer", responses: "Replies[GenerateResponse]") -> None:
    from imp_service.cli.terminal import AnswerWriter

    writer = AnswerWriter()
    try:
        answer.write_text(responses, writer)
    except BaseException:
        if sys.stdout.isatty():  # what comes next, an error or a shell's prompt, begins a line
            writer.end_line()
        raise
    writer.end_line()
    answer.write_facts()


def _warn_of_approximations(responses: "Replies[GenerateResponse]") -> None:
    """A server that took a lossy way says so: whoever reads the answer should know."""
    from imp_service.cli.failure import warning_line

    ways = responses.metadata.get("imp-approximations")
    if ways is not None:
        print(warning_line(f"the answer is approximate: {ways!s}"), file=sys.stderr, flush=True)
