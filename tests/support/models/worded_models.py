"""Writes tiny models with random weights and a vocabulary of bytes and control tokens that the test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from support.models.tiny_models import tiny
from support.text.tiny_vocabularies import byte_level

P = "tokenizer.ggml."


def write_worded(
    path: Path,
    control: Sequence[str],
    *,
    eos: str | None = None,
    padding: int = 0,
    family: str = "qwen3",
    hidden_size: int = 40,
    **keys: Any,
) -> dict[str, int]:
    """Writes the model; returns the ids of its control tokens. The embedding has `padding` rows beyond the tokens.

    `keys` are further keys of the file, without the prefix of tokenizer keys.
    """
    words = byte_level(merges=[("t", "h")], control=control)
    n_tokens = len(cast(list[str], words[P + "tokens"]))
    ids = {text: n_tokens - len(control) + i for i, text in enumerate(control)}
    del words[P + "eos_token_id"]
    if eos is not None:
        words[P + "eos_token_id"] = ids[eos]
    contents = tiny(family, vocab_size=n_tokens + padding, hidden_size=hidden_size).contents()
    del contents.keys[P + "eos_token_id"]
    contents.keys = {**contents.keys, **words, **{P + name: value for name, value in keys.items()}}
    contents.write(path)
    return ids
