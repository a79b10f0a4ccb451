"""imp call generate: prints the text of a Generate stream as it comes."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from imp_service.cli.answer import summary_text
from imp_service.cli.failure import CommandError
from imp_service.cli.options.connection import connect
from imp_service.cli.options.generation import add_generation_options, request_of
from imp_service.cli.output import write_message
from imp_service.cli.terminal import AnswerWriter
from imp_service.client import StreamOrder

if TYPE_CHECKING:
    from imp_service.client import Connection
    from imp_service.client.connection import Replies
    from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse, GenerationFinished, GenerationStarted


class StreamedAnswer:
    """Made when it is asked for: the first token is timed from then."""

    def __init__(self, n_sequences: int = 1) -> None:
        self._asked_at = time.monotonic()
        self._order = StreamOrder(n_sequences)
        self._first_token_seconds: float | None = None
        self._n_tokens = 0
        self.text = ""
        self.started: GenerationStarted | None = None
        self.finished: GenerationFinished | None = None

    def write_text(self, responses: "Iterator[GenerateResponse]", writer: AnswerWriter) -> None:
        """Writes one sequence's text as it comes; what has come stays, however this ends."""
        for response in self._checked(responses):
            writer.write(_text_of(response))

    def write_json(self, responses: "Iterator[GenerateResponse]") -> None:
        for response in self._checked(responses):
            write_message(response)

    def _checked(self, responses: "Iterator[GenerateResponse]") -> "Iterator[GenerateResponse]":
        for response in responses:
            self._order.see(response)
            self.text += _text_of(response)
            if response.HasField("started"):
                self.started = response.started
            elif response.HasField("finished"):
                self.finished = response.finished
            elif response.HasField("chunk"):
                if self._first_token_seconds is None:
                    self._first_token_seconds = time.monotonic() - self._asked_at
                self._n_tokens += len(response.chunk.token_ids)
            yield response
        self._order.end()

    @property
    def reason(self) -> str:
        """As "max_tokens"; empty before the end."""
        from imp_service.pb.types_pb2 import FinishReason

        if self.finished is None:
            return ""
        try:
            name = FinishReason.Name(self.finished.reason)
        except ValueError:  # of a later revision
            return f"ended for reason {self.finished.reason}"
        return name.removeprefix("FINISH_REASON_").lower()

    def write_facts(self) -> None:
        """To stderr: how much, how fast, and what it takes to have the same again."""
        if self.started is None or self.finished is None:
            return
        decode = self.finished.timings.decode.ToTimedelta().total_seconds()
        # The size of a server's context is not the caller's to change.
        reason = "ended by the context" if self.reason == "context_full" else self.reason
        summary = summary_text(self._n_tokens, decode, self._first_token_seconds, reason)
        started = self.started
        cached = f", {started.cached_prompt_tokens} of them cached" if started.cached_prompt_tokens else ""
        print(
            f"— {summary}.   {started.model}: prompt {started.prompt_tokens} tokens{cached}, seed {started.seed}, "
            f"request {started.request_id}",
            file=sys.stderr,
            flush=True,
        )


def _text_of(response: "GenerateResponse") -> str:
    return response.chunk.text or response.finished.text  # of what it is not, a response has an empty one


def configure_generate(parser: ArgumentParser) -> None:
    parser.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="*",
        help="the text to continue, in one or several words; - reads it from stdin; none: in --fields",
    )
    add_generation_options(parser)
    parser.set_defaults(act=_generate)


def _generate(arguments: Namespace) -> int:
    from imp_service.cli.terminal import AnswerWriter, is_prompt_shown, join_prompt, read_prompt

    request = request_of(arguments)
    if (not arguments.prompt) == (request.WhichOneof("prompt") is None):
        raise CommandError("USAGE", "PROMPT: expected one, as an argument or in --fields")
    if arguments.prompt:
        typed = join_prompt(arguments.prompt)
        request.text = read_prompt(typed)
        if is_prompt_shown(typed) and not arguments.json:
            AnswerWriter(sys.stderr).write(request.text)
    with connect(arguments) as connection:
        write_answer(connection, request, is_json=arguments.json)
    return 0


def write_answer(
    connection: "Connection", request: "GenerateRequest", *, is_json: bool, answer: "StreamedAnswer | None" = None
) -> None:
    """Asks, and writes what comes; what came is in `answer`, however this ends."""
    from imp_service.pb.inference_pb2_grpc import InferenceServiceStub

    answer = answer or StreamedAnswer(max(1, request.num_sequences))
    responses = connection.stream(InferenceServiceStub(connection.channel).Generate, request)
    with closing(responses):
        if is_json:
            answer.write_json(responses)
        else:
            # A prompt is shown before its answer, on the same line; a message of a chat is not.
            _write_text(answer, responses, is_line_open=request.WhichOneof("prompt") != "chat")
        _warn_of_approximations(responses)


def _write_text(answer: "StreamedAnswer", responses: "Replies[GenerateResponse]", *, is_line_open: bool) -> None:
    from imp_service.cli.terminal import AnswerWriter

    writer = AnswerWriter()
    try:
        answer.write_text(responses, writer)
    except BaseException:
        # What comes next, an error or a shell's prompt, begins a line.
        if sys.stdout.isatty() and (is_line_open or answer.text):
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
