"""The tokens of a text with a gap are those of the template that the model's authors published (FIM-1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from imp_service.api.chat_prompt import InfillFile, InfillPrompt
from imp_service.core import Error
from imp_service.generation.infill import infill_ids
from imp_service.text import Tokenizer
from support.run.needed import PARITY, needs
from support.text.hub_tokenizers import byte_level as library_of_bytes
from support.text.hub_tokenizers import files_of, with_tokens
from support.text.tiny_vocabularies import CONTROL, byte_level, sentencepiece

PREFIX, SUFFIX, MIDDLE = "def add(a, b):\n    ", "\n\nprint(add(1, 2))\n", "return"
PROMPT = InfillPrompt(PREFIX, SUFFIX, MIDDLE)
FILES = (InfillFile("a/one.py", "x = 1"), InfillFile("two.py", "y = 2\n"))
# Tokens, and the template of a file and of a repository, as their authors published them.
QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>")
STARCODER = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<repo_name>", "<file_sep>")
DEEPSEEK = ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>")
TEMPLATES: dict[str, tuple[Sequence[str], str]] = {
    "qwen": (QWEN, "<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>{middle}"),
    "starcoder": (STARCODER, "<fim_prefix>{prefix}<fim_suffix>{suffix}<fim_middle>{middle}"),
    "granite": (
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<reponame>"),
        "<fim_prefix>{prefix}<fim_suffix>{suffix}<fim_middle>{middle}",
    ),
    "deepseek": (
        DEEPSEEK,
        "<\uff5cfim\u2581begin\uff5c>{prefix}<\uff5cfim\u2581hole\uff5c>{suffix}<\uff5cfim\u2581end\uff5c>{middle}",
    ),
    "glm": (
        ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
        "<|code_prefix|>{prefix}<|code_suffix|>{suffix}<|code_middle|>{middle}",
    ),
    "codestral": (("[PREFIX]", "[SUFFIX]"), "[SUFFIX]{suffix}[PREFIX]{prefix}{middle}"),
}
REPOSITORY = "<|repo_name|>myproject\n<|file_sep|>a/one.py\nx = 1\n<|file_sep|>two.py\ny = 2\n\n<|file_sep|>filename\n"


def filled(template: str, prefix: str = PREFIX) -> str:
    return template.format(prefix=prefix, suffix=SUFFIX, middle=MIDDLE)


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("is_special", [True, False])
def test_fim_1_a_directory_has_the_published_template(family: str, is_special: bool) -> None:
    tokens, template = TEMPLATES[family]
    library = with_tokens(library_of_bytes(), tokens if is_special else (), () if is_special else tokens)
    tokenizer = Tokenizer.from_directory(files_of(library))
    expected = library.encode(filled(template), add_special_tokens=False).ids
    assert infill_ids(tokenizer, PROMPT, begins=True) == expected
    assert infill_ids(tokenizer, InfillPrompt(SUFFIX, PREFIX, MIDDLE), begins=True) != expected


@pytest.mark.parametrize("family", TEMPLATES)
def test_fim_1_a_gguf_file_has_the_same(family: str) -> None:
    tokens, template = TEMPLATES[family]
    tokenizer = Tokenizer.from_metadata(byte_level(merges=[("t", "h")], control=(*tokens, "<|end|>")))
    expected = tokenizer.encode(filled(template), add_special_tokens=False, parse_special_tokens=True)
    assert infill_ids(tokenizer, PROMPT, begins=True) == expected
    n_special = len(set(expected) & tokenizer.special_ids)
    assert n_special == (2 if family == "codestral" else 3)


def test_fim_1_further_files_come_first() -> None:
    library = with_tokens(library_of_bytes(), QWEN, ())
    tokenizer = Tokenizer.from_directory(files_of(library))
    expected = library.encode(REPOSITORY + filled(TEMPLATES["qwen"][1]), add_special_tokens=False).ids
    assert infill_ids(tokenizer, InfillPrompt(PREFIX, SUFFIX, MIDDLE, FILES), begins=True) == expected


def test_fim_1_without_tokens_for_files_their_text_is_before_the_prefix() -> None:
    library = with_tokens(library_of_bytes(), TEMPLATES["glm"][0], ())
    tokenizer = Tokenizer.from_directory(files_of(library))
    text = filled(TEMPLATES["glm"][1], prefix="a/one.py\nx = 1\ntwo.py\ny = 2\n\n" + PREFIX)
    expected = library.encode(text, add_special_tokens=False).ids
    assert infill_ids(tokenizer, InfillPrompt(PREFIX, SUFFIX, MIDDLE, FILES), begins=True) == expected


@pytest.mark.parametrize(
    ("name", "family", "begins"), [("deepseek-coder", "deepseek", True), ("starcoder", "starcoder", False)]
)
def test_fim_1_published_vocabularies_give_the_tokens_of_llama_cpp(
    vectors: Path, published: Callable[[str], Tokenizer], name: str, family: str, begins: bool
) -> None:
    with needs(PARITY):
        from llama_cpp import Llama
    peer = Llama(str(vectors / f"{name}.gguf"), vocab_only=True, verbose=False)
    text = filled(TEMPLATES[family][1])
    expected = peer.tokenize(text.encode(), add_bos=begins, special=True)
    assert infill_ids(published(name), PROMPT, begins=True) == expected
    assert infill_ids(published(name), PROMPT, begins=False) == expected[begins:]


def test_fim_1_only_a_text_that_begins_gets_a_space_in_codellama() -> None:
    words = sentencepiece([("\u2581", -1.0)])
    tokens = ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>", "\u2581<EOT>")
    words["tokenizer.ggml.tokens"] += tokens  # type: ignore[operator]
    words["tokenizer.ggml.scores"] += [0.0] * len(tokens)  # type: ignore[operator]
    words["tokenizer.ggml.token_type"] += [CONTROL] * len(tokens)  # type: ignore[operator]
    tokenizer = Tokenizer.from_metadata(words)
    ids = infill_ids(tokenizer, InfillPrompt("a", "b", "c"), begins=True)
    spelled = [tokenizer.token_bytes(each).decode() for each in ids]
    assert spelled == ["<s>", tokens[0], " ", "a", tokens[1], "b", tokens[2], "c"]


def test_fim_1_the_keys_of_a_file_name_the_tokens() -> None:
    words = byte_level(control=("<x>", "<y>", "<z>", "<fim_prefix>"))
    n_tokens = len(words["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    for keys in (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")):
        named = {f"tokenizer.ggml.{key}_token_id": n_tokens - 4 + i for i, key in enumerate(keys)}
        tokenizer = Tokenizer.from_metadata({**words, **named})
        assert tokenizer.decode(infill_ids(tokenizer, PROMPT, begins=True), special_tokens=True) == (
            f"<x>{PREFIX}<y>{SUFFIX}<z>{MIDDLE}"
        )


@pytest.mark.parametrize("is_special", [True, False])
def test_fim_2_special_tokens_in_the_texts_stay_text(is_special: bool) -> None:
    library = with_tokens(library_of_bytes(), QWEN if is_special else (), () if is_special else QWEN)
    tokenizer = Tokenizer.from_directory(files_of(library))
    spelled = "".join(QWEN)
    ids = infill_ids(tokenizer, InfillPrompt(spelled, spelled, spelled, (InfillFile(spelled, spelled),)), begins=True)
    of_template = [library.token_to_id(each) for each in (*QWEN[4:], QWEN[5], *QWEN[:3])]
    assert [each for each in ids if each in map(library.token_to_id, QWEN)] == of_template
    assert tokenizer.decode(ids, special_tokens=True).count("<|fim_prefix|>") == 6


@pytest.mark.parametrize("tokens", [(), ("<fim_prefix>",), ("<fim_suffix>", "<fim_middle>")])
def test_fim_3_a_vocabulary_without_the_tokens_fills_nothing(tokens: Sequence[str]) -> None:
    tokenizer = Tokenizer.from_metadata(byte_level(control=(*tokens, "<|end|>")))
    assert tokenizer.infill is None
    with pytest.raises(Error, match=r"infill: the vocabulary of this model has no tokens") as raised:
        infill_ids(tokenizer, PROMPT, begins=True)
    assert raised.value.reason == "NOT_SUPPORTED_BY_MODEL"


def test_fim_3_ordinary_text_that_is_spelled_like_a_token_is_none() -> None:
    words = byte_level(control=("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<|end|>"))
    words["tokenizer.ggml.token_type"] = [1] * len(words["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    assert Tokenizer.from_metadata(words).infill is None
