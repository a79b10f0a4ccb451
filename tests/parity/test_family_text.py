"""Every family continues a text as transformers does, from a directory and from a GGUF file."""

from __future__ import annotations

from pathlib import Path

import pytest

import imp_service
from support.family_cases import CASES as OTHER_CASES
from support.family_text import EOS, OPTIONS, PROMPT, SETTINGS, continued, text_case, text_peer
from support.hub_directory import words_of
from support.hub_tokenizers import files_of, library_of
from support.linear_attention_cases import LINEAR_CASES

pytest.importorskip("transformers", reason="transformers is not installed")

CASES = OTHER_CASES | LINEAR_CASES


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_hub_9_mod_30_hon_1_a_family_continues_a_text_as_transformers_does(name: str, tmp_path: Path) -> None:
    library = library_of("byte level")
    vocab_size = library.get_vocab_size()
    case = text_case(CASES[name], vocab_size)
    peer = text_peer(case)
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
