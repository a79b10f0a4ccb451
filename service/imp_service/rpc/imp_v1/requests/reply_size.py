"""How large a reply can become: a request whose reply could be too large to send is refused before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from imp_service.api.errors import invalid
from imp_service.api.options import GenerationRequest, StepOptions
from imp_service.serving.served_model import ServedModel

# Bytes of everything with a fixed size: ids, text of a few tokens, usage, timings.
FRAME_BYTES = 1024
# Bytes of text for a token. Most have fewer.
TEXT_BYTES = 8
LOGPROB_BYTES = 4


@dataclass(frozen=True, slots=True)
class ReplyPart:
    """Bytes of a reply, and the field that requests them."""

    path: str
    n_bytes: int


def check_generation_size(
    request: GenerationRequest, n_prompt: int, served: ServedModel, *, is_unary: bool, score_frame_bytes: int = 0
) -> None:
    """Raises FIELD_INVALID if `started`, or the reply of a unary call, could be too large to send.

    A protocol frames each score of the prompt with `score_frame_bytes`.
    """
    parts = list(_prompt_parts(request, n_prompt, served.vocab_size, score_frame_bytes))
    if is_unary:
        parts.append(_output_part(request, n_prompt, served))
    refuse_large(parts, served)


def most_chunk_tokens(request: GenerationRequest, asked: int, served: ServedModel) -> int:
    """The most tokens of one message: at most `asked`, and few enough that it can be sent."""
    room = served.settings.limits.max_message_bytes - FRAME_BYTES
    return max(1, min(asked, room // (_output_bytes(request, served.vocab_size) + TEXT_BYTES)))


def step_part(options: StepOptions, n_tokens: int, served: ServedModel, path: str = "step") -> ReplyPart:
    """The bytes that one session's step over `n_tokens` tokens returns."""
    per_token = entry_bytes(served.vocab_size, has_logprob=True, n_candidates=options.top_logprobs)
    scores = n_tokens * per_token if options.scores else 0
    logits = 4 * served.vocab_size if options.logits else 0
    blamed = "logits" if logits >= scores and logits else "scores" if scores else "top_logprobs"
    n_candidates = entry_bytes(served.vocab_size, has_logprob=False, n_candidates=options.top_logprobs)
    return ReplyPart(f"{path}.{blamed}", scores + logits + n_candidates + FRAME_BYTES // 2)


def ids_part(n_tokens: int, served: ServedModel) -> ReplyPart:
    """The bytes of the ids of so many tokens of a session."""
    return ReplyPart("resumable", n_tokens * varint_bytes(served.vocab_size - 1))


def refuse_large(parts: Iterable[ReplyPart], served: ServedModel) -> None:
    """Raises FIELD_INVALID for the largest part if all parts together are too large for a message."""
    found: Sequence[ReplyPart] = list(parts)
    n_bytes, most = FRAME_BYTES + sum(part.n_bytes for part in found), served.settings.limits.max_message_bytes
    if n_bytes > most:
        blamed = max(found, key=lambda part: part.n_bytes)
        words = f"the reply could have {n_bytes} bytes, at most limits.max_message_bytes = {most} can be sent"
        raise invalid(blamed.path, words)


def entry_bytes(vocab_size: int, *, has_logprob: bool, n_candidates: int) -> int:
    """The most bytes of one token in parallel lists: its id, log probability and candidates."""
    id_bytes = varint_bytes(vocab_size - 1)
    n_bytes = id_bytes + (LOGPROB_BYTES if has_logprob else 0)
    if n_candidates:
        # A candidate has two tags, an id and a float. It and its list each have a tag and a length.
        inner = n_candidates * (2 + 2 + id_bytes + LOGPROB_BYTES)
        n_bytes += 1 + varint_bytes(inner) + inner
    return n_bytes


def varint_bytes(value: int) -> int:
    """The bytes of an integer in protobuf: seven bits in each."""
    return max(1, -(-value.bit_length() // 7))


def _prompt_parts(
    request: GenerationRequest, n_prompt: int, vocab_size: int, score_frame_bytes: int
) -> Iterable[ReplyPart]:
    output = request.output
    if output.prompt_logprobs:
        per_token = entry_bytes(vocab_size, has_logprob=True, n_candidates=output.top_logprobs)
        yield ReplyPart("output.prompt_logprobs", n_prompt * (per_token + score_frame_bytes))
    elif output.prompt_token_ids:
        yield ReplyPart("output.prompt_token_ids", n_prompt * varint_bytes(vocab_size - 1))


def _output_bytes(request: GenerationRequest, vocab_size: int) -> int:
    output = request.output
    return entry_bytes(vocab_size, has_logprob=output.logprobs, n_candidates=output.top_logprobs)


def _output_part(request: GenerationRequest, n_prompt: int, served: ServedModel) -> ReplyPart:
    output, ceiling = request.output, served.settings.limits.max_tokens
    room = max(0, served.max_context - n_prompt + 1)
    n_outputs = min(room, ceiling or room) if request.stop.max_tokens is None else request.stop.max_tokens
    per_token = _output_bytes(request, served.vocab_size) + (TEXT_BYTES if output.text else 0)
    blamed = (
        "output.top_logprobs" if output.top_logprobs else "output.logprobs" if output.logprobs else "stop.max_tokens"
    )
    return ReplyPart(blamed, n_outputs * per_token * request.num_sequences)
