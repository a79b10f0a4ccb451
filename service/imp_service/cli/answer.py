"""One answer of a model: collects its replies, prints them as they arrive, and sums them up."""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from imp_service.cli.terminal import print_dim

if TYPE_CHECKING:
    from imp_service.api.replies import Finished, Reply, SparsePrefillReport, SpeculationReport, Started
    from imp_service.cli.terminal import TextWriter

# The longest answer, and the longest continuation of a text, unless a caller sets a bound: a model may never end them.
ANSWER_TOKENS = 4096
CONTINUATION_TOKENS = 512
_ENDS = {
    "max_tokens": "ended by the limit of tokens (--max-tokens)",
    "context_full": "ended by the full context (-c sets its size)",
    "time_limit": "ended by the time limit",
    "aborted": "ended by the server",
    "cancelled": "cancelled",
}


def summary_text(
    n_tokens: int,
    decode_seconds: float | None,
    first_token_seconds: float | None,
    reason: str,
    speculation: "SpeculationReport | None" = None,
    *,
    sparse: "SparsePrefillReport | None" = None,
) -> str:
    """For example "96 tokens, 310 tok/s, first token 12 ms, drafted 120, accepted 64, 3.0 tokens a step"."""
    parts = [f"{n_tokens} token{'s' if n_tokens != 1 else ''}"]
    # The first token comes with the prompt's evaluation: the rest is what decoding took.
    if decode_seconds and n_tokens > 1:
        parts.append(f"{(n_tokens - 1) / decode_seconds:.0f} tok/s")
    if first_token_seconds is not None:
        parts.append(f"first token {milliseconds(first_token_seconds)}")
    if speculation is not None and speculation.rounds:
        parts += _guesses(n_tokens, speculation)
    if sparse is not None and sparse.is_sparse:
        parts.append(f"approximate: {sparse.selected_tokens} of {sparse.scored_tokens} prompt tokens evaluated")
    if ended := end_text(reason):
        parts.append(ended)
    return ", ".join(parts)


def end_text(reason: str) -> str:
    """Why an answer ended, such as "ended by the time limit"; empty if the model ended it."""
    return "" if reason == "stop" else _ENDS.get(reason, reason)


def _guesses(n_tokens: int, speculation: "SpeculationReport") -> list[str]:
    drafted = sum(each.drafted for each in speculation.drafters)
    accepted = sum(each.accepted for each in speculation.drafters)
    # Each step gives one token, and those accepted come with them.
    steps = max(n_tokens - accepted, 1)
    return [f"drafted {drafted}", f"accepted {accepted}", f"{n_tokens / steps:.1f} tokens a step"]


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.{1 if seconds < 0.01 else 0}f} ms"


@dataclass(slots=True)
class Answer:
    """The replies of one sequence, added up. Its creation starts the time to the first token."""

    asked_at: float = field(default_factory=time.monotonic)
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    started: "Started | None" = None
    finished: "Finished | None" = None
    first_token_seconds: float | None = None

    @property
    def end(self) -> str:
        """Why it ended, such as "ended by the time limit"; empty if the model ended it, and before the end."""
        return "" if self.finished is None else end_text(self.finished.reason)

    @property
    def is_approximate(self) -> bool:
        """The prompt was evaluated in part."""
        sparse = None if self.started is None else self.started.sparse_prefill
        return sparse is not None and sparse.is_sparse

    @property
    def summary(self) -> str:
        """For example "96 tokens, 310 tok/s, first token 12 ms", and why it ended, unless the model ended it."""
        assert self.finished is not None  # narrows
        timings = self.finished.timings
        decode = None if timings is None else timings.decode
        return summary_text(
            len(self.token_ids),
            decode,
            self.first_token_seconds,
            self.finished.reason,
            self.finished.speculation,
            sparse=None if self.started is None else self.started.sparse_prefill,
        )


def collect(answer: Answer, replies: "Iterable[Reply]", writer: "TextWriter | None") -> None:
    """Adds the replies to `answer` as they come, so that an interrupted answer is not lost."""
    from imp_service.api.replies import Finished, Started

    for reply in replies:
        if isinstance(reply, Started):
            answer.started = reply
            continue
        if isinstance(reply, Finished):
            answer.finished = reply
        else:
            if answer.first_token_seconds is None:
                answer.first_token_seconds = time.monotonic() - answer.asked_at
            answer.token_ids += reply.token_ids
        answer.text += reply.text
        if writer is not None:
            writer.write(reply.text)


def answer_object(answer: Answer) -> dict[str, object]:
    """The answer as `--json` prints it; times in seconds."""
    started, finished = answer.started, answer.finished
    assert started is not None and finished is not None and finished.usage is not None  # narrows
    timings = {} if finished.timings is None else asdict(finished.timings)
    match = None if finished.match is None else {k: v for k, v in asdict(finished.match).items() if v is not None}
    return {
        "text": answer.text,
        "token_ids": answer.token_ids,
        "finish_reason": finished.reason,
        "match": match,
        "seed": started.seed,
        "usage": asdict(finished.usage),
        "speculation": None if finished.speculation is None else asdict(finished.speculation),
        "sparse_prefill": None if started.sparse_prefill is None else asdict(started.sparse_prefill),
        "timings": {**timings, "first_token": answer.first_token_seconds},
    }


def print_end(answer: Answer, verbose: bool) -> None:
    """Prints why an answer ended, unless the model ended it; with `verbose` its tokens and their speed too."""
    if answer.finished is not None and (verbose or answer.is_approximate):
        print_dim(f"— {answer.summary}.")
    elif answer.end:
        print_dim(f"— {answer.end}.")
