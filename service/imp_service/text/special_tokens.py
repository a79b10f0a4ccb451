"""Tokens with a role of their own: which ids begin, end, and separate, by the file's keys and by known spellings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress, count

from imp_service.text.metadata import TokenizerMetadata

# Spellings of the tokens that end a turn, as the published families have them. Files name one or two of them at most,
# and some mark them as plain text, so they are also found by what they spell.
END_SPELLINGS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<end_of_utterance>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
)


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids with a role of their own; None where the file names none."""

    bos: int | None
    eos: int | None
    unknown: int | None
    separator: int | None
    # All that end a generation, the file's eos, eot and eom and the known spellings.
    ends: frozenset[int]
    # Never to be sampled.
    suppressed: tuple[int, ...]


def spelled_ends(pieces: list[bytes]) -> Iterator[int]:
    """Ids, ascending, of what spells the end of a turn."""
    spellings = {spelling.encode() for spelling in END_SPELLINGS}
    return compress(count(), map(spellings.__contains__, pieces))


def read_special_ids(keys: TokenizerMetadata, pieces: list[bytes]) -> SpecialIds:
    """The roles that the file and its vocabulary name."""
    n_tokens = len(pieces)
    named = {name: keys.token_id(f"{name}_token_id", n_tokens) for name in ("bos", "eos", "eot", "eom", "unknown")}
    for name in ("padding", "mask"):
        keys.token_id(f"{name}_token_id", n_tokens)
    # The format's own spelling of the key is the first one.
    separator = keys.token_id("seperator_token_id", n_tokens)
    if separator is None:
        separator = keys.token_id("separator_token_id", n_tokens)
    bos = named["bos"] if named["bos"] is not None else keys.token_id("cls_token_id", n_tokens)

    by_text = {pieces[token_id]: token_id for token_id in spelled_ends(pieces)}
    if b"<|return|>" in by_text or b"<|calls|>" in by_text:
        # Here the end of a message inside a turn, not of the turn.
        by_text.pop(b"<|end|>", None)
    ends = {named[name] for name in ("eos", "eot", "eom")} | set(by_text.values())
    return SpecialIds(
        bos=bos,
        eos=named["eos"],
        unknown=named["unknown"],
        separator=separator,
        ends=frozenset(token_id for token_id in ends if token_id is not None),
        suppressed=keys.token_ids("suppress_tokens", n_tokens),
    )
