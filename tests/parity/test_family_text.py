"""Every family continues a text as transformers does, from a directory and from a GGUF file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import imp_service
from support.family_cases import CASES as OTHER_CASES
from support.family_cases import FamilyCase, peer_logits, text_part
from support.hub_directory import words_of
from support.hub_tokenizers import files_of, library_of
from support.linear_attention_cases import LINEAR_CASES

pytest.importorskip("transformers", reason="transformers is not installed")

CASES = OTHER_CASES | LINEAR_CASES
PROMPT = "Hello there, "
N_TOKENS = 12
EOS = "<|im_end|>"
OPTIONS: dict[str, Any] = {"max_tokens": N_TOKENS, "temperature": 0, "ignore_eos": True, "logprobs": True}
# LongRoPE has other frequencies in longer contexts.
SETTINGS = ("device.threads=1", "kv.dtype=f32", "model.overrides.max_context=64")


def case_of(name: str, vocab_size: int) -> FamilyCase:
    case = CASES[name]
    sizes = {"vocab_size": vocab_size}
    if "vocab_size_per_layer_input" in case.traits:
        sizes["vocab_size_per_layer_input"] = vocab_size
    return dataclasses.replace(case, traits=case.traits | sizes)


def peer_of(case: FamilyCase) -> Any:
    """Returns the model of transformers. Its embedding is small: otherwise a head that is tied to it repeats tokens."""
    peer = case.peer()
    text_part(peer).embed_tokens.weight.data.mul_(0.02)
    return peer


def continued(peer: Any, tokens: list[int]) -> list[int]:
    """Returns the most probable tokens, one after the other."""
    found = list(tokens)
    for _ in range(N_TOKENS):
        found.append(int(peer_logits(peer, found)[-1].argmax()))
    return found[len(tokens) :]


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_hub_9_mod_30_hon_1_a_family_continues_a_text_as_transformers_does(name: str, tmp_path: Path) -> None:
    library = library_of("byte level")
    vocab_size = library.get_vocab_size()
    case = case_of(name, vocab_size)
    peer = peer_of(case)
    folder = tmp_path / "model"
    peer.save_pretrained(folder)
    for file, content in files_of(library, eos_token=EOS).items():
        (folder / file).write_bytes(content)
    contents = case.exported(peer)
    contents.keys |= words_of(library, "qwen2", vocab_size, EOS)
    expected = continued(peer, library.encode(PROMPT, add_special_tokens=False).ids)
    assert len(set(expected)) > 2 or name == "starcoder2"  # which repeats one token
    for path in (folder, contents.write(tmp_path / "m.gguf")):
        with imp_service.load(path, *SETTINGS) as model:
            found = model.generate(PROMPT, **OPTIONS).result()
            other = model.generate(f"{PROMPT}x", **OPTIONS).result()
        assert list(found.token_ids) == expected
        assert found.text == library.decode(expected)
        assert found.logprobs != other.logprobs  # HON-1
