"""Draft heads, as users name them in the settings: the same replies, and words for each way in which there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import ConfigError, ModelError
from imp_service.config import read_settings
from imp_service.core import open_file
from imp_service.core.inspect import inspect_model
from support.models.fixed_depth import fixed_depth
from support.models.tiny_assistant import TinyAssistant
from support.models.tiny_gemma4 import TinyGemma4
from support.models.tiny_heads import TinyEagle, TinyNextN
from support.models.tiny_models import tiny
from support.models.worded_models import write_worded

SMALL = ("device.threads=1", "kv.bytes=1MiB")
HEAD, BOTH = 'speculation.drafters=["head"]', 'speculation.drafters=["ngram", "head"]'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and the folder of a head for it."""
    folder = tmp_path_factory.mktemp("head")
    ids = write_worded(folder / "m.gguf", ["<|end|>"], eos="<|end|>")
    model = tiny("qwen3", vocab_size=ids["<|end|>"] + 1)
    return folder / "m.gguf", TinyEagle(model, taps=(0, 1, 2), n_rows=97).write(folder / "eagle3")


@pytest.fixture(scope="module")
def assisted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A Gemma 4 and the file of its assistant."""
    folder = tmp_path_factory.mktemp("assisted")
    ids = write_worded(folder / "m.gguf", ["<|end|>"], eos="<|end|>", family="gemma4")
    model = tiny("gemma4", vocab_size=ids["<|end|>"] + 1)
    assert isinstance(model, TinyGemma4)
    return folder / "m.gguf", TinyAssistant(model).write(folder / "mtp-m.gguf")


def ask(path: Path, *settings: str, **options: Any) -> imp_service.GenerationResult:
    with imp_service.load(str(path), *SMALL, *settings) as model:
        return model.generate("the thing that", max_tokens=24, temperature=0.7, seed=3, **options).result()


def warnings(path: Path, *settings: str) -> list[str]:
    with imp_service.load(str(path), *SMALL, *settings) as model:
        return list(model.warnings)


def named(folder: Path) -> str:
    return f"speculation.head={folder}"


def test_spc_1_spc_27_a_generation_with_a_head_is_the_same(files: tuple[Path, Path]) -> None:
    path, folder = files
    plain = ask(path)
    with fixed_depth():
        guessed = ask(path, HEAD, named(folder))
    assert (guessed.text, guessed.token_ids) == (plain.text, plain.token_ids)
    assert guessed.usage.draft_tokens > 20 and plain.usage.draft_tokens == 0
    assert ask(path, HEAD, named(folder), speculation_enabled=False).usage.draft_tokens == 0


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.9, "seed": 4},
    "penalties": {"temperature": 0.7, "seed": 4, "repetition_penalty": 1.3, "frequency_penalty": 0.6},
    "JSON": {"temperature": 0.7, "seed": 1, "json_schema": SCHEMA},
}


@pytest.mark.parametrize("way", WAYS)
def test_spc_1_spd_13_a_generation_with_an_assistant_is_the_same(way: str, assisted: tuple[Path, Path]) -> None:
    path, head = assisted
    with imp_service.load(str(path), *SMALL) as model:
        plain = model.generate("the thing that", max_tokens=40, **WAYS[way]).result()
    with fixed_depth(), imp_service.load(str(path), *SMALL, HEAD, named(head)) as model:
        guessed = model.generate("the thing that", max_tokens=40, **WAYS[way]).result()
        assert list(model.warnings) == []
    assert (guessed.text, guessed.token_ids) == (plain.text, plain.token_ids)
    assert guessed.usage.draft_tokens > 20  # those of the constraint, where there is one


def test_spc_29_inspect_and_the_log_tell_of_an_assistant(assisted: tuple[Path, Path]) -> None:
    path, head = assisted
    config = read_settings(None, [*SMALL, HEAD, f"model.path={path}", named(head)])
    told = inspect_model(open_file(config), config)
    assert told.memory.items["head"] > 0
    with pytest.raises(ModelError, match=r"speculation\.head: .*the assistant of a Gemma 4, expected a head for qwen3"):
        write_worded(path.parent / "other.gguf", ["<|end|>"], eos="<|end|>")
        ask(path.parent / "other.gguf", HEAD, named(head))


def test_spc_29_a_start_says_why_there_is_no_head(files: tuple[Path, Path], tmp_path: Path) -> None:
    path, folder = files
    expected = "head: the model's head is none, expected a model that has one, or the path of one as speculation.head"
    with pytest.raises(ConfigError, match=expected):
        ask(path, HEAD)
    assert "speculation.drafters: head has no effect: the model's head is none" in warnings(path, BOTH)
    unused = "speculation.head has no effect: speculation.drafters has no head"
    assert unused in warnings(path, named(folder))
    assert not [warning for warning in warnings(path, BOTH, named(folder)) if "head" in warning]
    incomplete = tiny("qwen35", n_draft_layers=1).write(tmp_path / "r.gguf")
    config = read_settings(None, [*SMALL, BOTH, f"model.path={incomplete}"])
    report = inspect_model(open_file(config), config)
    assert any("the model's head is none (its tensors are of another kind)" in text for text in report.warnings)


def test_spc_23_faults_of_a_head_name_the_setting(files: tuple[Path, Path], tmp_path: Path) -> None:
    path, _ = files
    with pytest.raises(ModelError, match=r"speculation\.head: nothere"):
        ask(path, HEAD, named(tmp_path / "nothere"))
    other = TinyEagle(tiny("qwen3", hidden_size=48), taps=(0, 1, 2)).write(tmp_path / "other")
    with pytest.raises(ModelError, match=r"speculation\.head: .*key hidden_size: 48, expected the model's hidden size"):
        ask(path, HEAD, named(other))


def test_spc_29_inspect_tells_of_the_head_and_its_memory(files: tuple[Path, Path], tmp_path: Path) -> None:
    own = TinyNextN(tiny("llama")).write(tmp_path / "own.gguf")
    plain = read_settings(None, [*SMALL, f"model.path={own}"])
    config = read_settings(None, [*SMALL, HEAD, f"model.path={own}"])
    told = inspect_model(open_file(config), config)
    [fact] = [fact for fact in told.facts if fact.name == "head"]
    assert (fact.value, fact.origin) == ("nextn", "checkpoint")
    assert told.memory.items["head"] > 0
    assert "head" not in inspect_model(open_file(plain), plain).memory.items
