"""The tokens with which a model fills in the middle of a text, by the keys of its file or by their spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, count

import numpy as np
from numpy.typing import NDArray

from imp_service.text.tokens.metadata import TokenizerMetadata
from imp_service.text.tokens.piece_types import TokenType

# Keys of a GGUF file that hold the id of a role. The second names are the older ones.
_KEYS: Mapping[str, Sequence[str]] = {
    "prefix": ("fim_pre_token_id", "prefix_token_id"),
    "suffix": ("fim_suf_token_id", "suffix_token_id"),
    "middle": ("fim_mid_token_id", "middle_token_id"),
    "pad": ("fim_pad_token_id",),
    "repository": ("fim_rep_token_id",),
    "file": ("fim_sep_token_id",),
}
# As Qwen, CodeGemma, StarCoder, Granite, DeepSeek, CodeLlama, GLM and Mistral spell them.
_SPELLINGS: Mapping[str, Sequence[str]] = {
    "prefix": (
        *("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<\uff5cfim\u2581begin\uff5c>"),
        *("\u2581<PRE>", "<PRE>", "<|code_prefix|>", "[PREFIX]"),
    ),
    "suffix": (
        *("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<\uff5cfim\u2581hole\uff5c>"),
        *("\u2581<SUF>", "<SUF>", "<|code_suffix|>", "[SUFFIX]"),
    ),
    "middle": (
        *("<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<\uff5cfim\u2581end\uff5c>"),
        *("\u2581<MID>", "<MID>", "<|code_middle|>"),
    ),
    "pad": ("<|fim_pad|>", "<fim_pad>", "<fim-pad>"),
    "repository": ("<|repo_name|>", "<repo_name>", "<reponame>"),
    "file": ("<|file_sep|>", "<file_sep>", "<|file_separator|>"),
}


@dataclass(frozen=True, slots=True)
class InfillTokens:
    """Ids by their role; None where the model has none."""

    prefix: int
    suffix: int
    # None: the suffix comes first, and the output follows the prefix.
    middle: int | None
    # Before the name of a repository, and before that of each of its files.
    repository: int | None
    file: int | None
    # An output ends at these, since what it fills ends there.
    ends: frozenset[int]


def stated_infill(keys: TokenizerMetadata, n_tokens: int) -> Mapping[str, int]:
    """The ids that a GGUF file names, by their role."""
    found: dict[str, int] = {}
    for role, names in _KEYS.items():
        for name in names:
            if (token_id := keys.token_id(name, n_tokens)) is not None:
                found.setdefault(role, token_id)
    return found


def read_infill(stated: Mapping[str, int], pieces: Sequence[bytes], types: NDArray[np.uint8]) -> InfillTokens | None:
    """The tokens of a vocabulary; None if it has none for the prefix or the suffix. Looks at every piece."""
    spelled = {text.encode() for text in chain(*_SPELLINGS.values())}
    found = {pieces[i]: i for i in compress(count(), map(spelled.__contains__, pieces)) if _is_added(types[i])}
    ids = dict(stated)
    for role, spellings in _SPELLINGS.items():
        if (text := next((each for each in spellings if each.encode() in found), None)) is not None:
            ids.setdefault(role, found[text.encode()])
    if "prefix" not in ids or "suffix" not in ids:
        return None
    return InfillTokens(
        ids["prefix"],
        ids["suffix"],
        ids.get("middle"),
        ids.get("repository"),
        ids.get("file"),
        frozenset(ids.values()),
    )


def _is_added(kind: int) -> bool:
    """Ordinary text may be spelled like one of the tokens."""
    return kind in (TokenType.CONTROL, TokenType.USER_DEFINED)
