"""A model directory as a hub has it serves text with the right tokens, templates, end tokens and sampling."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import imp_service
from imp_service import LanguageModel
from imp_service.core import ModelError
from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.files.hub_directory import CHATML, model_for, write_directory, write_twin
from support.text import family_templates as templates
from support.text.chat_templates import MISTRAL
from support.text.hub_tokenizers import library_of, random_texts


@dataclass(frozen=True)
class Family:
    """How a family's models are published."""

    tokenizer: str
    pre: str  # the pre-tokenizer of its GGUF file
    template: str = CHATML
    eos: str = "<|im_end|>"
    dialect: str = "plain"
    changes: dict[str, Any] = field(default_factory=dict)  # of the tiny model


HARMONY = templates.FAMILIES["harmony"]
FAMILIES = {
    "qwen3": Family("byte level", "qwen2"),
    "qwen2": Family("byte level, gpt-2", "gpt-2"),
    "llama": Family("pairs, prepended", ""),
    "gemma2": Family("pairs, prepended", ""),
    "gemma3": Family("pairs, prepended", ""),
    "mistral3": Family("byte level, tekken", "tekken", MISTRAL, "</s>"),
    "gpt-oss": Family(
        "byte level, harmony", "gpt-4o", HARMONY.template, HARMONY.end, HARMONY.dialect,
        {"hidden_size": 64, "expert_ffn_size": 96, "expert_dtype": "mxfp4"},
    ),
}  # fmt: skip
MESSAGES = [{"role": "user", "content": "Hello <|im_end|> there"}]
SMALL = "device.threads=1"


def load(path: Path, *settings: str) -> LanguageModel:
    return imp_service.load(path, SMALL, *settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = library_of("byte level")
    return write_directory(tmp_path_factory.mktemp("hub") / "Tiny-Qwen3", library, model_for(library))


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[LanguageModel]:
    with load(folder) as loaded:
        yield loaded


@pytest.mark.long
@pytest.mark.parametrize("n_texts", [100, 10_000])
@pytest.mark.parametrize("family", FAMILIES)
def test_hub_3_a_directory_and_its_gguf_file_are_one_model(family: str, n_texts: int, tmp_path: Path) -> None:
    case = FAMILIES[family]
    library = library_of(case.tokenizer)
    tiny = model_for(library, family, **case.changes)
    named: dict[str, Any] = {"template": case.template, "eos": case.eos}
    with (
        load(write_directory(tmp_path / "m", library, tiny, bos_token="<s>", unk_token="<unk>", **named)) as directory,
        load(write_twin(tmp_path / "m.gguf", library, tiny, pre=case.pre, **named)) as file,
    ):
        for text in random_texts(n_texts, seed=7):
            for added in (True, False):
                ids = directory.tokenize(text, add_special_tokens=added, parse_special_tokens=added)
                assert ids == file.tokenize(text, add_special_tokens=added, parse_special_tokens=added), text
                assert directory.detokenize(ids) == file.detokenize(ids)
        assert directory.num_tokens == file.num_tokens < directory.vocab_size
        assert directory.eos_token_ids == file.eos_token_ids
        assert directory._runtime.text.dialect.name == file._runtime.text.dialect.name == case.dialect
        asked: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": True}
        for found, expected in (
            (directory.generate("Hello", **asked), file.generate("Hello", **asked)),
            (directory.chat(MESSAGES, **asked), file.chat(MESSAGES, **asked)),
        ):
            ours, theirs = found.result(), expected.result()
            assert ours.token_ids == theirs.token_ids and ours.logprobs == theirs.logprobs
            assert (ours.text, ours.usage.prompt_tokens) == (theirs.text, theirs.usage.prompt_tokens)


# Prefixes of a wrapped model's tensors and of its lm_head, in new and in older checkpoints.
WRAPPINGS = {"model.language_model.": "lm_head.", "language_model.model.": "language_model.lm_head."}


@pytest.mark.long
@pytest.mark.parametrize("prefix", WRAPPINGS)
def test_hub_3_the_text_part_of_a_model_that_sees_is_its_gguf_file(prefix: str, tmp_path: Path) -> None:
    library = library_of("pairs, prepended")
    tiny = model_for(library, "gemma3")
    folder = write_directory(tmp_path / "m", library, tiny, bos_token="<s>", unk_token="<unk>")
    text = hf_config(tiny) | {"model_type": "gemma3_text"}
    wrapped = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    tensors = {
        name.replace("model.", prefix, 1).replace("lm_head.", WRAPPINGS[prefix]): values
        for name, values in hf_tensors(tiny).items()
    }
    tower = {"vision_tower.patch.weight": np.ones((2, 2), np.float32)}
    write_hf(folder / "model.safetensors", wrapped | {"vision_config": {"hidden_size": 2}}, tensors | tower)
    (folder / "preprocessor_config.json").write_text("{}")
    (folder / "chat_template.jinja").rename(folder / "template")
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": (folder / "template").read_text()}))
    asked: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": True}
    with load(folder) as directory, load(write_twin(tmp_path / "m.gguf", library, tiny, pre="")) as file:
        assert any("vision_tower.patch.weight" in warning for warning in directory.warnings)
        ours, theirs = directory.chat(MESSAGES, **asked).result(), file.chat(MESSAGES, **asked).result()
        assert (ours.text, ours.token_ids, ours.logprobs) == (theirs.text, theirs.token_ids, theirs.logprobs)


def test_hub_3_another_tokenizer_or_other_weights_are_another_model(tmp_path: Path) -> None:
    library = library_of("byte level")
    tiny = model_for(library)
    asked: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": True}
    found = []
    for name, seed in (("one", 0), ("other", 1)):
        changed = model_for(library, seed=seed)
        with load(write_directory(tmp_path / name, library, changed)) as model:
            found.append(model.generate("Hello", **asked).result().logprobs)
    assert found[0] != found[1]
    with load(write_twin(tmp_path / "m.gguf", library, tiny, pre="gpt-2")) as file, load(tmp_path / "one") as directory:
        assert any(directory.tokenize(text) != file.tokenize(text) for text in random_texts(100, seed=7))


def test_hub_4_each_source_of_an_end_ends_the_text(tmp_path: Path) -> None:
    library = library_of("byte level")
    tiny = model_for(library)
    ids = {text: library.token_to_id(text) for text in ("<|im_start|>", "<|im_end|>", "<think>")}
    ways: list[tuple[dict[str, Any], set[int]]] = [
        ({}, {ids["<|im_end|>"]}),
        ({"generation": {"eos_token_id": [ids["<think>"], ids["<|im_start|>"]]}}, set(ids.values())),
        ({"eos": "<|im_start|>"}, {ids["<|im_start|>"], ids["<|im_end|>"]}),
    ]
    for i, (options, expected) in enumerate(ways):
        with load(write_directory(tmp_path / str(i), library, tiny, **options)) as model:
            assert set(model.eos_token_ids) == expected


def test_hub_5_rows_beyond_the_tokens_are_no_tokens(model: LanguageModel) -> None:
    library = library_of("byte level")
    assert (model.num_tokens, model.vocab_size) == (library.get_vocab_size(), library.get_vocab_size() + 9)
    with pytest.raises(imp_service.FieldsInvalid):
        model.generate([model.num_tokens], max_tokens=1)
    bias = dict.fromkeys(range(model.num_tokens - 3, model.num_tokens), 100.0)
    for seed in range(20):
        result = model.generate("a", max_tokens=8, seed=seed, temperature=2.0, ignore_eos=True).result()
        assert all(token < model.num_tokens for token in result.token_ids)
    assert model.generate("a", max_tokens=1, logit_bias=bias, temperature=0).result().token_ids[0] >= 0


def test_hub_6_generation_config_is_the_default_sampling(tmp_path: Path) -> None:
    library = library_of("byte level")
    tiny = model_for(library)
    said = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "repetition_penalty": 1.1}
    with load(write_directory(tmp_path / "all", library, tiny, generation=said)) as model:
        found = model.default_sampling
        assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.6, 20, 0.95, 0.1)
        assert found.repetition_penalty == 1.1 and found.penalty_window == 0
    with load(write_directory(tmp_path / "greedy", library, tiny, generation={**said, "do_sample": False})) as model:
        assert model.default_sampling.temperature == 0
    first = model_tokens(tmp_path / "greedy")
    blocked = {"do_sample": False, "suppress_tokens": [first[0]], "num_beams": 4, "typical_p": 1.0}
    with load(write_directory(tmp_path / "blocked", library, tiny, generation=blocked)) as model:
        assert first[0] not in model.generate("Hello", max_tokens=8, ignore_eos=True).result().token_ids
        assert any("num_beams" in warning and "typical_p" not in warning for warning in model.warnings)


def model_tokens(folder: Path) -> list[int]:
    with load(folder) as model:
        return list(model.generate("Hello", max_tokens=8, ignore_eos=True).result().token_ids)


def test_hub_7_a_model_in_a_hub_s_cache_is_a_folder_of_links(folder: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--Tiny-Qwen3" / "snapshots" / "0123"
    blobs = tmp_path / "models--org--Tiny-Qwen3" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for i, file in enumerate(sorted(folder.iterdir())):
        (blobs / str(i)).write_bytes(file.read_bytes())
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(i))
    with load(snapshot) as linked, load(folder) as plain:
        assert linked.name == plain.name == "Tiny-Qwen3"
        assert linked.tokenize("Hello") == plain.tokenize("Hello")
    (snapshot / "chat_template.jinja").unlink()
    (snapshot / "chat_template.jinja").symlink_to("../../blobs/none")
    with pytest.raises(ModelError, match=r"chat_template\.jinja: a link to a file that does not exist"):
        load(snapshot)


def without_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def cut_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes()[:100])


def too_many_tokens(folder: Path) -> None:
    library = library_of("byte level")
    write_directory(folder, library, model_for(library, padding=-200), eos="a")


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (without_tokenizer, r"^TOKENIZER_INVALID: m/tokenizer\.json: missing"),
        (cut_tokenizer, r"^TOKENIZER_INVALID: m/tokenizer\.json: not JSON"),
        (too_many_tokens, r"^TOKENIZER_INVALID: m/tokenizer\.json: 500 tokens, the model has 304 embedding rows"),
    ],
)
def test_hub_8_what_is_wrong_is_reported_with_its_file(
    breaks: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    library = library_of("byte level")
    folder = write_directory(tmp_path / "m", library, model_for(library))
    breaks(folder)
    with pytest.raises(ModelError, match=said):
        load(folder)


def test_hub_8_a_rule_for_words_is_refused_where_a_file_has_one(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.overrides\.pre_tokenizer: tokenizer\.json states how words are cut"):
        load(folder, "model.overrides.pre_tokenizer=gpt-2")
