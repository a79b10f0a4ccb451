"""imp call generate: prints text from a server as it arrives."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

from imp_service.cli.answer import ANSWER_TOKENS, CONTINUATION_TOKENS
from imp_service.cli.call.images import add_parts, media_of
from imp_service.cli.call.recording import add_record_option, recording_of
from imp_service.cli.failure import CommandError
from imp_service.cli.options.connection import connect
from imp_service.cli.options.generation import add_generation_options, request_of
from imp_service.cli.options.images import add_image_option, read_images, tell_of_chat

if TYPE_CHECKING:
    from imp_service.cli.call.recording import Recording
    from imp_service.cli.call.streamed_answer import StreamedAnswer
    from imp_service.cli.terminal import TextWriter
    from imp_service.client.connection import Connection
    from imp_service.client.joined_replies import JoinedReplies
    from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse


def configure_generate(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="PROMPT",
        nargs="*",
        help="the text to continue, in one or several words; - reads it from stdin; none: in --fields",
    )
    add_image_option(parser)
    add_generation_options(parser)
    add_record_option(parser)
    parser.set_defaults(run_method=_generate)


def _generate(arguments: Namespace) -> int:
    from imp_service.cli.terminal import AnswerWriter, is_prompt_shown, join_prompt, read_prompt

    request = request_of(arguments)
    if (not arguments.words) == (request.WhichOneof("prompt") is None):
        raise CommandError("USAGE", "PROMPT: expected one, as an argument or in --fields")
    if arguments.images and not arguments.words:
        raise CommandError("USAGE", "--image: expected PROMPT too, as an argument")
    with connect(arguments) as connection:
        if arguments.words:
            typed = join_prompt(arguments.words)
            images = _images(connection, arguments)
            text = read_prompt(typed)
            _set_prompt(request, images, text)
            if is_prompt_shown(typed) and not arguments.json:
                AnswerWriter(sys.stderr).write(text)
        recording = recording_of(arguments, connection, request)
        write_answer(connection, request, is_json=arguments.json, verbose=arguments.verbose, recording=recording)
    return 0


def _images(connection: "Connection", arguments: Namespace) -> list[bytes]:
    names: list[str] = arguments.images
    if not names:
        return []
    media = media_of(connection)
    if media.needs_chat:
        tell_of_chat("imp call chat --image")
    return read_images(names, arguments.words, media.request_bytes)


def _set_prompt(request: "GenerateRequest", images: Sequence[bytes], text: str) -> None:
    if images:
        add_parts(request.parts.parts, images, text)
    else:
        request.text = text


def write_answer(
    connection: "Connection",
    request: "GenerateRequest",
    *,
    is_json: bool,
    verbose: bool,
    answer: "StreamedAnswer | None" = None,
    writer: "TextWriter | None" = None,
    recording: "Recording | None" = None,
) -> None:
    """Sends the request and writes the replies. `answer` keeps the received part, even after an error."""
    from imp_service.cli.call.streamed_answer import StreamedAnswer
    from imp_service.cli.terminal import AnswerWriter
    from imp_service.client.joined_replies import JoinedReplies

    answer = answer or StreamedAnswer(most_tokens(request))
    responses = JoinedReplies(connection, request)
    replies: Iterator[GenerateResponse] = responses if recording is None else recording.watch(responses)
    with closing(responses), recording or nullcontext():
        if is_json:
            answer.write_json(replies)
        else:
            # The answer continues the line of the prompt; a message of a chat has a line of its own.
            is_line_open = request.WhichOneof("prompt") != "chat"
            _write_text(answer, replies, writer or AnswerWriter(), is_line_open=is_line_open, verbose=verbose)
        _warn_of_approximations(responses)


def most_tokens(request: "GenerateRequest") -> int | None:
    """How long a text may become: None if the request has a bound of its own."""
    if request.stop.HasField("max_tokens"):
        return None
    return ANSWER_TOKENS if request.WhichOneof("prompt") == "chat" else CONTINUATION_TOKENS


def _write_text(
    answer: "StreamedAnswer",
    responses: "Iterator[GenerateResponse]",
    writer: "TextWriter",
    *,
    is_line_open: bool,
    verbose: bool,
) -> None:
    try:
        answer.write_text(responses, writer)
    except BaseException:
        # The error, or the prompt of the shell, begins on a new line.
        if sys.stdout.isatty() and (is_line_open or answer.text):
            writer.end_line()
        raise
    writer.end_line()
    answer.write_end(verbose=verbose)


def _warn_of_approximations(responses: "JoinedReplies") -> None:
    """Warns if the server used a lossy feature."""
    from imp_service.cli.failure import warning_line

    ways = responses.metadata.get("imp-approximations")
    if ways is not None:
        print(warning_line(f"the answer is approximate: {ways!s}"), file=sys.stderr, flush=True)
