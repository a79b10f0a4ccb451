"""The replies of a generation and of a step: the messages of imp.v1 as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from .errors import left_early
from .json_classes import read_json
from .options import SamplingOptions, seed_of
from .resume import Origin
from .shown import html_of, quoted, tokens_text
from .tool_calls import ToolCallDelta, joined_calls

FinishReason = Literal["stop", "max_tokens", "context_full", "time_limit", "aborted", "cancelled"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that was likely here, with its log probability before penalties and truncation."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log probabilities of consecutive tokens, in parallel lists. The first token of a prompt has NaN."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    candidates: list[list[Candidate]] = field(default_factory=list)


class Scores(Protocol):
    """Scores, in the form in which their source stores them.

    Those of a long prompt take long to convert, so parts() converts a few at a time.
    """

    def __len__(self) -> int: ...

    def parts(self) -> Iterator[TokenScores]:
        """All of them, in order."""

    def whole(self) -> TokenScores:
        """All of them in one."""


@dataclass(frozen=True, slots=True)
class SparsePrefillReport:
    """How a prompt was evaluated for which a request, or the settings, asked for sparse prefill."""

    is_sparse: bool  # only a part was evaluated
    # Why all of it was evaluated: "requested", "keep_all", "prompt_scores", "media", "over_limit", "below_threshold",
    # "not_profitable" or "failed"; else empty.
    reason: str = ""
    scored_tokens: int = 0  # by the draft model,
    selected_tokens: int = 0  # and those of them that the model evaluated
    scoring: float = 0.0  # seconds


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Consecutive tokens of a prompt that are an image, or a tile of one."""

    first_token: int
    tokens: int
    positions: int  # how far the positions advance
    image: int  # the image's number in the request


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt is evaluated."""

    # In force: each number has a value, the request's or the model's default. Without biases and breakers.
    sampling: SamplingOptions
    prompt_tokens: int
    cached_prompt_tokens: int
    held_scores: Scores
    # None: nobody asked for it.
    sparse_prefill: SparsePrefillReport | None = None
    media: Sequence[MediaSpan] = ()
    # For a request that resumes this stream. None: no request can.
    origin: Origin | None = None
    # Of a resumed stream: tokens that the caller has already, over all sequences.
    resumed_tokens: int = 0

    @property
    def seed(self) -> int:
        """The seed in use. A request with this seed repeats the output."""
        return seed_of(self.sampling)

    @property
    def prompt(self) -> TokenScores:
        """The prompt's token ids and scores, if they were requested. Each call converts them again."""
        return self.held_scores.whole()

    @property
    def text(self) -> str:
        """Empty. Every reply has a text, so that a caller can join them."""
        return ""

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class Chunk:
    """New tokens of one sequence, and their text. Never what an earlier chunk had.

    With `OutputOptions.parse` the text is content alone. Only the first delta of a call has its id and name; the
    arguments of all its deltas joined are JSON.

    It is not frozen: that would triple the cost of making one.
    """

    index: int
    first_token: int
    token_ids: list[int]
    text: str
    logprobs: list[float]
    candidates: list[list[Candidate]]
    reasoning: str = ""
    tool_calls: Sequence[ToolCallDelta] = ()
    # Little-endian numbers of 32 bits, of which `first_token` is drawn. Only a decision has them.
    logits: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class StopMatch:
    """The reason for a sequence's end: exactly one field is set."""

    text: str | None = None
    token_id: int | None = None
    eos_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens that a request used, over all its sequences."""

    prompt_tokens: int
    cached_prompt_tokens: int
    output_tokens: int
    draft_tokens: int = 0  # guesses that the model verified,
    accepted_draft_tokens: int = 0  # and those of them that were right
    reasoning_tokens: int = 0  # those of the output that are reasoning, if it is parsed
    prompt_media_tokens: int = 0  # those of the prompt that are images


@dataclass(frozen=True, slots=True)
class DrafterReport:
    """What one drafter did for a request."""

    name: str
    drafted: int  # guesses that the model verified,
    accepted: int  # and those of them that became output


@dataclass(frozen=True, slots=True)
class SpeculationReport:
    """How speculative decoding went, over all sequences of a request.

    `off_reason` says why nothing was guessed at its end: "disabled", "media" or "not_worth_it". It is
    empty if something was, or if no drafter had an idea.
    """

    drafters: Sequence[DrafterReport] = ()
    rounds: int = 0  # steps of a sequence that verified guesses
    off_reason: str = ""


@dataclass(frozen=True, slots=True)
class Timings:
    """The time of a request by its phases, in seconds."""

    queue: float
    prefill: float
    decode: float
    blocked: float = 0.0  # paused because its reader did not read
    encode: float = 0.0  # part of queue and prefill: images that were encoded for it


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one sequence. The last to end has usage, timings and speculation."""

    index: int
    reason: FinishReason
    match: StopMatch | None
    text: str
    usage: Usage | None = None
    timings: Timings | None = None
    # Held back until now, like the text.
    reasoning: str = ""
    tool_calls: Sequence[ToolCallDelta] = ()
    speculation: SpeculationReport | None = None

    def __str__(self) -> str:
        return self.text


Reply = Started | Chunk | Finished


@dataclass(frozen=True, slots=True, repr=False)
class GenerationResult:
    """One whole output. Each tool call is one delta, with all of it. Printed, it is its text.

    `usage`, `timings` and `speculation` are of all sequences together.
    """

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    match: StopMatch | None
    sampling: SamplingOptions
    usage: Usage
    timings: Timings
    logprobs: list[float]
    candidates: list[list[Candidate]]
    prompt: TokenScores
    reasoning: str = ""
    tool_calls: Sequence[ToolCallDelta] = ()
    speculation: SpeculationReport = SpeculationReport()
    sparse_prefill: SparsePrefillReport | None = None
    # How often the connection or the server went away and the stream went on; the times are then of its last part.
    resumed: int = 0

    @property
    def seed(self) -> int:
        """The seed in use. A request with this seed repeats the output."""
        return seed_of(self.sampling)

    def parse(self, kind: Any = None) -> Any:
        """The text, which is JSON, as a value; with a class of pydantic as an object of it.

        Raises ValueError, also if the output ended before the JSON did.
        """
        try:
            return read_json(self.text, kind)
        except ValueError as error:
            if self.finish_reason == "stop":
                raise
            raise ValueError(f"the text is not whole: the output was ended by {self.finish_reason}") from error

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        calls = "".join(f" {each.name}({each.arguments})" for each in self.tool_calls)
        return f"<GenerationResult {quoted(self.text)}{calls}: {self._figures}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """For IPython. Within a list it is one line."""
        is_alone = len(printer.stack) == 1
        printer.text(f"{self._shown}\n— {self._figures}" if is_alone else repr(self))

    def _repr_html_(self) -> str:
        return html_of(self._shown, self._figures)

    @property
    def _shown(self) -> str:
        """The text and the calls, for a notebook."""
        return "\n".join([*([self.text] if self.text else []), *(f"{c.name}({c.arguments})" for c in self.tool_calls)])

    @property
    def _figures(self) -> str:
        seconds = self.timings.queue + self.timings.prefill + self.timings.decode
        time = f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"
        return f"{tokens_text(len(self.token_ids))} in {time}, ended by {self.finish_reason}"


def results_of(replies: Sequence[Reply], n_resumed: int = 0) -> list[GenerationResult]:
    """The output of each sequence. Raises CANCELLED if these are not all replies of a generation."""
    match replies:
        case [Started() as started, *_, Finished(usage=Usage() as usage, timings=Timings() as timings) as last]:
            pass
        case _:
            raise left_early()
    prompt, results = started.prompt, []
    for end in sorted((each for each in replies if isinstance(each, Finished)), key=lambda each: each.index):
        chunks = [each for each in replies if isinstance(each, Chunk) and each.index == end.index]
        parts: list[Chunk | Finished] = [*chunks, end]
        results.append(
            GenerationResult(
                text="".join(each.text for each in chunks) + end.text,
                token_ids=[token for each in chunks for token in each.token_ids],
                finish_reason=end.reason,
                match=end.match,
                sampling=started.sampling,
                usage=usage,
                timings=timings,
                logprobs=[logprob for each in chunks for logprob in each.logprobs],
                candidates=[items for each in chunks for items in each.candidates],
                prompt=prompt,
                reasoning="".join(each.reasoning for each in parts),
                tool_calls=_whole_calls(parts),
                speculation=last.speculation or SpeculationReport(),
                sparse_prefill=started.sparse_prefill,
                resumed=n_resumed,
            )
        )
    return results


def _whole_calls(replies: Sequence[Chunk | Finished]) -> Sequence[ToolCallDelta]:
    return joined_calls([call for each in replies for call in each.tool_calls])


@dataclass(frozen=True, slots=True, repr=False)
class StepOutput:
    """The output of a session at one step. The sampled token is pending: not yet held. Printed, it is its text."""

    position: int
    token_id: int | None
    logprob: float | None
    text: str
    eos: bool
    cached_tokens: int
    candidates: list[Candidate]
    logits: bytes
    held_scores: Scores
    timings: Timings

    @property
    def scores(self) -> TokenScores:
        """The scores of the tokens that it evaluated, if requested. Each call converts them again."""
        return self.held_scores.whole()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        end = ", the end" if self.eos else ""
        return f"<StepOutput {quoted(self.text)}: token {self.token_id}{end}; {tokens_text(self.position)} held>"


def progress_text(replies: Sequence[Reply], *, is_open: bool, result: str = "result()") -> str:
    """How far a generation is, and how to get its output."""
    n_tokens = sum(len(each.token_ids) for each in replies if isinstance(each, Chunk))
    match replies:
        case [*_, Finished(usage=Usage())] as whole:
            first = results_of(whole)[0]
            return f"{quoted(first.text)}, ended by {first.finish_reason}; {result} has all of it"
        case _ if is_open:
            return f"{tokens_text(n_tokens)} read so far; {result}.text waits for the whole text"
        case _:
            return f"closed or failed after {tokens_text(n_tokens)}"
