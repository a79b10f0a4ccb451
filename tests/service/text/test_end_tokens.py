"""Which tokens end a text: by key, by spelling, or by the settings alone, each with its source."""

from __future__ import annotations

import numpy as np
import pytest

from imp_service.text import ConstraintCompiler, ConstraintKind, ConstraintSpec, Tokenizer, TokenizerInvalid
from imp_service.text.tokens.special_tokens import read_stated_ends
from support.text.tiny_vocabularies import CONTROL, NORMAL, USER_DEFINED, byte_level

P = "tokenizer.ggml."


def _ends(metadata: dict[str, object], end_ids: list[int] | None = None) -> dict[str, tuple[str, ...]]:
    tokenizer = Tokenizer.from_metadata(metadata, end_ids=end_ids)
    return {tokenizer.token_bytes(i).decode(): sources for i, sources in tokenizer.special.ends.items()}


def _vocabulary(control: list[str], *, eos: str | None, **keys: object) -> dict[str, object]:
    metadata = byte_level(control=control)
    del metadata[P + "eos_token_id"]
    if eos is not None:
        metadata[P + "eos_token_id"] = 256 + control.index(eos)
    return metadata | {P + name: value for name, value in keys.items()}


# Published vocabularies, with only their end tokens, and the ends that their chats need.
FAMILIES = {
    "llama 3": (
        _vocabulary(["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"], eos="<|end_of_text|>"),
        {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"},
    ),
    "gemma": (_vocabulary(["<pad>", "<eos>", "<bos>", "<end_of_turn>"], eos="<eos>"), {"<eos>", "<end_of_turn>"}),
    "gemma whose eos is the end of a turn": (
        _vocabulary(["<pad>", "<eos>", "<bos>", "<end_of_turn>"], eos="<end_of_turn>"),
        {"<eos>", "<end_of_turn>"},
    ),
    "chatml on llama 2": (
        _vocabulary(["<s>", "</s>", "<|im_start|>", "<|im_end|>"], eos="</s>"),
        {"</s>", "<|im_end|>"},
    ),
    "chatml whose eos is the turn's": (
        _vocabulary(["<s>", "</s>", "<|im_start|>", "<|im_end|>"], eos="<|im_end|>"),
        {"</s>", "<|im_end|>"},
    ),
    "phi 3": (
        _vocabulary(["</s>", "<|endoftext|>", "<|end|>"], eos="<|endoftext|>"),
        {"</s>", "<|endoftext|>", "<|end|>"},
    ),
    "code llama": (_vocabulary(["</s>", "_<EOT>"], eos="</s>"), {"</s>", "_<EOT>"}),
    "harmony": (_vocabulary(["<|end|>", "<|return|>", "<|call|>"], eos="<|return|>"), {"<|return|>", "<|call|>"}),
    "gemma 4": (
        _vocabulary(["</s>", "<eos>", "<turn|>", "<|tool_response>"], eos="<eos>"),
        {"<eos>", "<turn|>", "<|tool_response>"},
    ),
    "no key": (_vocabulary(["<|endoftext|>", "</s>"], eos=None), {"<|endoftext|>", "</s>"}),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_txt_29_ends_are_found_by_key_and_by_spelling(family: str) -> None:
    metadata, expected = FAMILIES[family]
    assert set(_ends(metadata)) == expected


def test_txt_29_each_end_has_all_its_sources() -> None:
    metadata = _vocabulary(["<a>", "<|eot_id|>", "</s>", "<b>"], eos="</s>", eot_token_id=257, eos_token_ids=[257, 259])
    assert _ends(metadata) == {
        "<|eot_id|>": (P + "eot_token_id", P + "eos_token_ids", "spelled <|eot_id|>"),
        "</s>": (P + "eos_token_id", "spelled </s>"),
        "<b>": (P + "eos_token_ids",),
    }


@pytest.mark.parametrize("spelling", ["</s>", "<eos>", "_<EOT>", "\u2581<EOT>"])
@pytest.mark.parametrize(("token_type", "is_end"), [(CONTROL, True), (NORMAL, False), (USER_DEFINED, False)])
def test_txt_29_what_texts_may_hold_ends_only_as_a_control_token(spelling: str, token_type: int, is_end: bool) -> None:
    metadata = _vocabulary([spelling, "<|im_end|>"], eos="<|im_end|>")
    types = metadata[P + "token_type"]
    assert isinstance(types, list)
    types[256] = token_type
    tokenizer = Tokenizer.from_metadata(metadata)
    assert (256 in tokenizer.eos_ids, 257 in tokenizer.eos_ids) == (is_end, True)
    assert (256 in tokenizer.special_ids) == is_end, "elsewhere it stays text"


def test_txt_29_settings_take_the_place_of_all_of_them() -> None:
    metadata, _ = FAMILIES["llama 3"]
    source = ("model.overrides.eos_token_ids",)
    assert _ends(metadata, [259, 97, 259]) == {"a": source, "<|eot_id|>": source}
    assert _ends(metadata, []) == {}
    for wrong in (-1, 260):
        with pytest.raises(TokenizerInvalid) as caught:
            _ends(metadata, [wrong])
        assert caught.value.path == "model.overrides.eos_token_ids"
        assert f"token id {wrong}, expected 0 to 259" in caught.value.message


@pytest.mark.few(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_txt_29_a_constraint_ends_with_each_of_them(family: str) -> None:
    metadata, expected = FAMILIES[family]
    tokenizer = Tokenizer.from_metadata(metadata)
    spec = ConstraintSpec(ConstraintKind.REGEX, "a*")
    state = ConstraintCompiler(tokenizer, vocab_size=tokenizer.vocab_size).compile(spec).start()
    bits = np.unpackbits(np.frombuffer(state.mask(), np.uint8), bitorder="little")
    assert {tokenizer.token_bytes(i).decode() for i in bits.nonzero()[0].tolist()} == {"a"} | expected


def test_txt_29_a_directory_states_its_ends_in_two_files() -> None:
    facts = {"eos_token_id": 2, "generation_config.eos_token_id": np.array([7, 2])}
    assert read_stated_ends(facts, 8) == {
        2: ("eos_token_id", "generation_config.eos_token_id"),
        7: ("generation_config.eos_token_id",),
    }
    assert read_stated_ends(facts, 8, [5]) == {5: ("model.overrides.eos_token_ids",)}
    for wrong in (8, [-1, 8], "x", True):
        with pytest.raises(TokenizerInvalid):
            read_stated_ends({"eos_token_id": wrong}, 8)


@pytest.mark.parametrize(("ids", "ends"), [(-1, []), ([-1, 2], [2]), (np.array([-100, -1]), [])])
def test_hub_4_a_negative_id_is_no_end(ids: object, ends: list[int]) -> None:
    for key in ("eos_token_id", "generation_config.eos_token_id"):
        assert list(read_stated_ends({key: ids}, 8)) == ends


@pytest.mark.parametrize("wrong", [[300], [-1], 5, ["a"]])
def test_t04_a_list_of_ends_outside_the_vocabulary(wrong: object) -> None:
    with pytest.raises(TokenizerInvalid) as caught:
        Tokenizer.from_metadata(_vocabulary(["</s>"], eos="</s>", eos_token_ids=wrong))
    assert caught.value.path == P + "eos_token_ids"
