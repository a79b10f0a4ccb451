"""One Generate stream from a server: written as it arrives, and summed up."""

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from imp_service.cli.answer import end_text, summary_text
from imp_service.cli.output import write_message
from imp_service.cli.terminal import TextWriter, print_dim

if TYPE_CHECKING:
    from imp_service.pb.inference_pb2 import GenerateResponse, GenerationFinished, GenerationStarted


class StreamedAnswer:
    """One stream. Its creation starts the time to the first token. As a text it ends after `most_tokens`."""

    def __init__(self, most_tokens: int | None = None) -> None:
        self._asked_at = time.monotonic()
        self._first_token_seconds: float | None = None
        self._n_tokens = 0
        self._most_tokens = math.inf if most_tokens is None else most_tokens
        self.text = ""
        self.started: GenerationStarted | None = None
        self.finished: GenerationFinished | None = None

    def write_text(self, responses: "Iterator[GenerateResponse]", writer: TextWriter) -> None:
        """Writes one sequence's text as it comes. `text` keeps the received part, even after an error."""
        for response in self._noted(responses):
            writer.write(_text_of(response))
            if self._n_tokens >= self._most_tokens and self.finished is None:
                return

    def write_json(self, responses: "Iterator[GenerateResponse]") -> None:
        for response in self._noted(responses):
            write_message(response)

    def _noted(self, responses: "Iterator[GenerateResponse]") -> "Iterator[GenerateResponse]":
        for response in responses:
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

    @property
    def reason(self) -> str:
        """For example "max_tokens"; empty before the end."""
        from imp_service.pb.types_pb2 import FinishReason

        if self.finished is None:
            return "max_tokens" if self._n_tokens >= self._most_tokens else ""
        try:
            name = FinishReason.Name(self.finished.reason)
        except ValueError:  # of a later revision of the API
            return f"ended for reason {self.finished.reason}"
        return name.removeprefix("FINISH_REASON_").lower()

    def write_end(self, *, verbose: bool) -> None:
        """Prints why the answer ended, unless the model ended it.

        With `verbose` also its size, its speed, and the values that reproduce it.
        """
        if verbose and self.started is not None and self.finished is not None:
            print_dim(f"— {self._facts(self.started, self.finished)}")
        elif ended := end_text(self._told_reason):
            print_dim(f"— {ended}.")

    @property
    def _told_reason(self) -> str:
        # A caller cannot change the context of a server.
        return "ended by the context" if self.reason == "context_full" else self.reason or "stop"

    def _facts(self, started: "GenerationStarted", finished: "GenerationFinished") -> str:
        decode = finished.timings.decode.ToTimedelta().total_seconds()
        summary = summary_text(self._n_tokens, decode, self._first_token_seconds, self._told_reason)
        cached = f", {started.cached_prompt_tokens} of them cached" if started.cached_prompt_tokens else ""
        return (
            f"{summary}.   {started.model}: prompt {started.prompt_tokens} tokens{cached}, seed {started.seed}, "
            f"request {started.request_id}"
        )


def _text_of(response: "GenerateResponse") -> str:
    return response.chunk.text or response.finished.text  # a field of another kind of response is empty
