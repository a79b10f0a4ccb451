"""The text that every family continues in the tests, as transformers does."""

from __future__ import annotations

import dataclasses
from typing import Any

from support.models.family_cases import SIZES, FamilyCase, peer_logits, text_part

PROMPT = "Hello there, "
N_TOKENS = 12
EOS = "<|im_end|>"
OPTIONS: dict[str, Any] = {"max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True, "logprobs": True}
# LongRoPE has other frequencies in longer contexts.
SETTINGS = ("device.threads=1", "kv.dtype=f32", "model.overrides.max_context=64")
# A head that is tied to the embedding repeats tokens, unless the embedding is small.
SMALL = 0.02


def text_case(case: FamilyCase, vocab_size: int) -> FamilyCase:
    """Returns the case with this many tokens."""
    sizes = {key: vocab_size for key in ("vocab_size", "vocab_size_per_layer_input") if key in SIZES | case.traits}
    return dataclasses.replace(case, traits=case.traits | sizes)


def text_peer(case: FamilyCase) -> Any:
    """Returns the model of transformers."""
    peer = case.peer()
    text_part(peer).embed_tokens.weight.data.mul_(SMALL)
    return peer


def continued(peer: Any, tokens: list[int]) -> list[int]:
    """Returns the most probable tokens, one after the other."""
    found = list(tokens)
    for _ in range(N_TOKENS):
        found.append(int(peer_logits(peer, found)[-1].argmax()))
    return found[len(tokens) :]
