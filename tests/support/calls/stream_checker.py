"""Checks one Generate stream message by message: its grammar, numbering, parallel arrays, text and usage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2

# Ids and whether special tokens are rendered -> text.
Detokenize = Callable[[Sequence[int], bool], str]


class StreamViolation(AssertionError):
    """A stream broke an invariant of the API."""


def require(holds: bool, words: str) -> None:
    """Raises StreamViolation with these words unless the condition holds."""
    if not holds:
        raise StreamViolation(words)


@dataclass
class CheckedSequence:
    """The state of one index of a stream."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finished: pb.GenerationFinished | None = None


class StreamChecker:
    """Takes every message of a stream in order, then its end."""

    def __init__(self, request: pb.GenerateRequest, detokenize: Detokenize | None = None) -> None:
        self._request = request
        self._detokenize = detokenize
        count = request.num_sequences if request.HasField("num_sequences") else 1
        self.sequences = [CheckedSequence() for _ in range(count)]
        # Of a resumed request the caller has the first tokens, and their text, in a stream that is not seen here.
        for sequence, told in zip(self.sequences, request.resume.sequences, strict=False):
            sequence.token_ids += told.token_ids
            sequence.finished = pb.GenerationFinished() if told.finished else None
        self._is_resumed = request.HasField("resume")
        self._is_told_whole = self._is_resumed and all(told.finished for told in request.resume.sequences)
        self.started: pb.GenerationStarted | None = None
        self.usage: types_pb2.Usage | None = None
        self.is_ended = False

    def feed(self, message: pb.GenerateResponse) -> None:
        """Checks the next message."""
        require(not self.is_ended, "a message after the end")
        kind = message.WhichOneof("event")
        require(kind is not None, "a message without an event")
        require((kind == "started") == (self.started is None), f"{kind} where started comes first and once")
        if kind == "started":
            self._check_started(message.started)
        elif kind == "chunk":
            self._check_chunk(message.chunk)
        else:
            self._check_finished(message.finished)

    def end_ok(self) -> None:
        """Checks the end of a stream with status OK."""
        self.is_ended = True
        require(self.started is not None, "OK without started")
        open_ones = [i for i, sequence in enumerate(self.sequences) if sequence.finished is None]
        require(not open_ones, f"OK, but no finished for {open_ones}")
        require(self.usage is not None or self._is_told_whole, "OK without usage")

    def end_failed(self) -> None:
        """Ends a stream that failed: no message may follow."""
        self.is_ended = True

    def _check_started(self, started: pb.GenerationStarted) -> None:
        self.started = started
        wanted = self._request
        require(bool(started.request_id), "started without a request id")
        require(wanted.request_id in ("", started.request_id), f"request id {started.request_id}")
        require(bool(started.model), "started without a model")
        if wanted.sampling.HasField("seed"):
            require(started.seed == wanted.sampling.seed, f"seed {started.seed}, asked {wanted.sampling.seed}")
        if wanted.WhichOneof("prompt") == "token_ids":
            require(started.prompt_tokens == len(wanted.token_ids.ids), f"prompt_tokens {started.prompt_tokens}")
        require(started.cached_prompt_tokens <= started.prompt_tokens, "more cached than there are")
        n_told = sum(len(told.token_ids) for told in wanted.resume.sequences)
        require(started.resumed_tokens == n_told, f"resumed_tokens {started.resumed_tokens}, told {n_told}")
        if self._is_resumed:
            require(started.origin == wanted.resume.origin, "another origin than that of the stream")
        self._check_prompt(started)

    def _check_prompt(self, started: pb.GenerationStarted) -> None:
        prompt, output = started.prompt, self._request.output
        n = started.prompt_tokens
        n_ids, n_scores = len(prompt.token_ids), len(prompt.logprobs)
        require(n_ids in ((n, 0) if output.prompt_token_ids else (0,)), f"{n_ids} prompt ids of {n}")
        require(n_scores in ((n, 0) if output.prompt_logprobs else (0,)), f"{n_scores} prompt scores of {n}")
        require(len(prompt.candidates) in (0, n_scores), "prompt candidates are not parallel")
        if prompt.logprobs:
            require(math.isnan(prompt.logprobs[0]), "the first prompt token has a score")
            require(not any(math.isnan(x) or x > 0 for x in prompt.logprobs[1:]), "a prompt score is none")
        if self._request.WhichOneof("prompt") == "token_ids" and prompt.token_ids:
            require(list(prompt.token_ids) == list(self._request.token_ids.ids), "other prompt ids")

    def _sequence(self, index: int) -> CheckedSequence:
        require(index < len(self.sequences), f"index {index} of {len(self.sequences)}")
        sequence = self.sequences[index]
        require(sequence.finished is None, f"index {index} goes on after finished")
        return sequence

    def _check_chunk(self, chunk: pb.GenerationChunk) -> None:
        sequence, output, n = self._sequence(chunk.index), self._request.output, len(chunk.token_ids)
        require(n >= 1, "a chunk without a token")
        require(chunk.first_token == len(sequence.token_ids), f"token {chunk.first_token}, sent {sequence.token_ids}")
        if output.HasField("max_chunk_tokens"):
            require(n <= output.max_chunk_tokens, f"{n} tokens in a chunk of at most {output.max_chunk_tokens}")
        require(len(chunk.logprobs) == (n if output.logprobs else 0), f"{len(chunk.logprobs)} logprobs of {n}")
        require(not any(math.isnan(x) or x > 0 for x in chunk.logprobs), "a logprob is none")
        require(len(chunk.candidates) == (n if output.top_logprobs else 0), f"{len(chunk.candidates)} candidates")
        for candidates in chunk.candidates:
            found = [item.logprob for item in candidates.items]
            require(len(found) <= output.top_logprobs and found == sorted(found, reverse=True), "candidates' order")
        self._add_text(sequence, chunk.text)
        sequence.token_ids += chunk.token_ids

    def _add_text(self, sequence: CheckedSequence, text: str) -> None:
        wants_text = not self._request.output.HasField("text") or self._request.output.text
        require(wants_text or not text, "text that was not asked for")
        sequence.text += text
        stop = self._request.stop
        if not stop.include_match and not stop.min_tokens:
            sent = [string for string in stop.strings if string in sequence.text]
            require(not sent, f"a stop string was sent: {sent}")

    def _check_finished(self, finished: pb.GenerationFinished) -> None:
        sequence = self._sequence(finished.index)
        reason = types_pb2.FinishReason.Name(finished.reason)
        require(finished.reason != types_pb2.FINISH_REASON_UNSPECIFIED, "no finish reason")
        self._add_text(sequence, finished.text)
        has_match = finished.match.WhichOneof("match") is not None
        require(not has_match or reason == "FINISH_REASON_STOP", f"{reason} with a match")
        stop, n = self._request.stop, len(sequence.token_ids)
        if stop.HasField("max_tokens"):
            # A stop token that is part of the output may come in addition.
            require(n <= stop.max_tokens + stop.include_match, f"{n} tokens of at most {stop.max_tokens}")
            if reason == "FINISH_REASON_MAX_TOKENS":
                require(n == stop.max_tokens, f"{n} tokens where max_tokens, {stop.max_tokens}, ended it")
        sequence.finished = finished
        self._check_totals(finished)
        self._check_whole_text(sequence)

    def _check_totals(self, finished: pb.GenerationFinished) -> None:
        is_last = all(sequence.finished is not None for sequence in self.sequences)
        require(finished.HasField("usage") == is_last, "usage is for the last to end")
        require(finished.HasField("timings") == is_last, "timings are for the last to end")
        if is_last:
            assert self.started is not None  # narrows
            self.usage = finished.usage
            ends = [each.finished.match.WhichOneof("match") for each in self.sequences if each.finished is not None]
            n_kept = self._request.stop.include_match * sum(end in ("token_id", "eos_token_id") for end in ends)
            sent = sum(len(sequence.token_ids) for sequence in self.sequences) - n_kept
            is_known = not (self._is_resumed and self._request.stop.include_match)
            require(
                not is_known or finished.usage.output_tokens == sent,
                f"usage {finished.usage.output_tokens}, sent {sent}",
            )
            require(finished.usage.prompt_tokens == self.started.prompt_tokens, "prompt_tokens changed")
            require(finished.usage.cached_prompt_tokens == self.started.cached_prompt_tokens, "cached tokens changed")

    def _check_whole_text(self, sequence: CheckedSequence) -> None:
        output, finished = self._request.output, sequence.finished
        if self._detokenize is None or finished is None or (output.HasField("text") and not output.text):
            return
        if self._is_resumed:
            return  # its text begins in another stream
        if self._request.WhichOneof("prompt") == "session_id":
            return  # its text may begin with earlier content of the session
        if output.parse:
            return  # the text is content alone
        whole = self._detokenize(sequence.token_ids, output.special_tokens)
        if finished.match.WhichOneof("match") == "text":
            match = finished.match.text
            kept = sequence.text if self._request.stop.include_match else sequence.text + match
            require(whole.startswith(kept) and kept.endswith(match), "text and stop string are not the tokens'")
        else:
            require(sequence.text == whole, f"text {sequence.text!r}, of its tokens {whole!r}")


def check_unary(request: pb.GenerateRequest, reply: pb.GenerateUnaryResponse, detokenize: Detokenize | None) -> None:
    """Checks a unary reply as the equivalent stream."""
    unchunked = pb.GenerateRequest()
    unchunked.CopyFrom(request)
    unchunked.output.ClearField("max_chunk_tokens")
    checker = StreamChecker(unchunked, detokenize)
    require(len(reply.sequences) == len(checker.sequences), f"{len(reply.sequences)} sequences")
    checker.feed(pb.GenerateResponse(started=reply.started))
    for index, sequence in enumerate(reply.sequences):
        require(sequence.output.index == index, f"sequence {sequence.output.index} at {index}")
        finished = pb.GenerationFinished(index=index, reason=sequence.reason)
        if sequence.HasField("match"):
            finished.match.CopyFrom(sequence.match)
        if sequence.output.token_ids:
            checker.feed(pb.GenerateResponse(chunk=sequence.output))
        else:
            finished.text = sequence.output.text
        if index == len(reply.sequences) - 1:
            finished.usage.CopyFrom(reply.usage)
            finished.timings.CopyFrom(reply.timings)
        checker.feed(pb.GenerateResponse(finished=finished))
    checker.end_ok()
