"""The built-in model with its draft, other pairs of files, and every reason why a pair is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import GenerationResult, _core
from imp_service.config import ConfigError, read_settings
from imp_service.core import ModelError, ResourceExhausted, load_weights, open_file
from imp_service.core.draft import drafters_text
from imp_service.core.inspect import inspect_model
from imp_service.models import demo_draft_model_path, demo_model_path
from support.models.fixed_depth import NO_DRAFTERS, fixed_depth
from support.models.tiny_models import tiny
from support.servers.http_served import serve_http
from support.servers.scraped import scrape

MODEL = 'speculation.drafters=["model"]'
BOTH = 'speculation.drafters=["ngram", "model"]'
SMALL = ("device.threads=1", "device.cpus=none", "kv.bytes=8MiB")
PROMPT = "Once upon a time"


def ask(model: Any, **options: Any) -> GenerationResult:
    return model.generate(
        PROMPT, **{"max_tokens": 60, "temperature": 0.8, "seed": 5, "logprobs": True, **options}
    ).result()


def seen(result: GenerationResult) -> dict[str, Any]:
    used = replace(result.usage, draft_tokens=0, accepted_draft_tokens=0, cached_prompt_tokens=0)
    return {name: getattr(result, name) for name in ("text", "token_ids", "finish_reason", "match", "logprobs")} | {
        "usage": used
    }


@pytest.mark.long
@pytest.mark.parametrize("drafters", [MODEL, BOTH])
def test_spc_1_spc_27_the_built_in_pair_gives_the_same_text(drafters: str) -> None:
    with fixed_depth(), imp_service.load(None, NO_DRAFTERS) as alone, imp_service.load(None, drafters) as pair:
        for options in ({}, {"temperature": 0}, {"repetition_penalty": 1.3}):
            expected, found = ask(alone, **options), ask(pair, **options)
            assert seen(found) == seen(expected)
            assert found.usage.draft_tokens > 10
            assert found.usage.accepted_draft_tokens > 10


def test_spc_27_spc_29_a_server_says_what_guesses_and_counts_it() -> None:
    with fixed_depth(), serve_http(MODEL) as http, imp_service.connect(http.served.address) as client:
        usage = ask(client).usage
        http.wait_for_rest()
        counted = scrape(http.served)
        named = http.served.state.model.drafters_text
    assert counted["imp_spec_drafted_total[drafter=model]"] == usage.draft_tokens > 10
    assert counted["imp_spec_accepted_total[drafter=model]"] == usage.accepted_draft_tokens
    assert named.startswith("model: demo-draft.gguf, a guess costs 0.1")


def test_spc_28_without_the_drafter_there_is_no_draft_model() -> None:
    for settings in ([], ['speculation.drafters=["ngram"]'], [f"speculation.model={demo_draft_model_path()}"]):
        loaded = load_weights(read_settings(None, [*SMALL, *settings]))
        assert loaded.model.draft is None
        assert not {"draft weights", "draft kv"} & set(loaded.model.memory["items"])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The built-in model under another path: a model without a draft of its own."""
    return Path(shutil.copy(demo_model_path(), tmp_path / "model.gguf"))


@pytest.mark.parametrize("drafters", [[], ["ngram"], ["model"], ["ngram", "model"]])
@pytest.mark.parametrize("has_file", [False, True])
def test_spc_29_the_start_names_each_drafter_or_why_it_is_not_there(
    copy: Path, drafters: list[str], has_file: bool
) -> None:
    settings = [f"model.path={copy}", f"speculation.drafters={json.dumps(drafters)}"]
    settings += [f"speculation.model={demo_draft_model_path()}"] if has_file else []
    loaded = load_weights(read_settings(None, [*SMALL, *settings]))
    texts = loaded.drafters_text.split("; ") if loaded.drafters_text else []
    is_served = "ngram" in drafters or ("model" in drafters and has_file)
    assert [text.partition(":")[0] for text in texts] == [*drafters, *(["grammar"] if is_served else [])]
    if "model" in drafters:
        assert texts[len(drafters) - 1].startswith(
            "model: demo-draft.gguf" if has_file else "model: none, speculation.model is not set"
        )
    assert (loaded.model.draft is not None) == (has_file and "model" in drafters)


def test_spc_29_the_memory_plan_has_the_draft_and_its_cache(copy: Path) -> None:
    def items(*settings: str) -> dict[str, int]:
        loaded = load_weights(read_settings(None, [*SMALL, MODEL, *settings]))
        found: dict[str, int] = loaded.model.memory["items"]
        assert list(found)[:4] == ["weights", "kv", "draft weights", "draft kv"]
        return found

    by_default, chosen = items(), items("speculation.kv_bytes=1MiB")
    assert by_default["draft weights"] > 600_000
    assert 0 < by_default["draft kv"] <= by_default["kv"] / 4
    assert 1024**2 - 65536 < chosen["draft kv"] <= 1024**2
    report = inspect_model(open_file(read_settings(None, [])), read_settings(None, [*SMALL, MODEL]))
    assert report.draft is not None and report.memory.items == by_default
    assert report.draft.bytes_per_token * 4 < report.draft.model_bytes_per_token


def other_vocabulary(path: Path) -> Path:
    """The built-in draft with two tokens exchanged."""
    data = demo_draft_model_path().read_bytes()
    begin = data.index(b"tokenizer.ggml.tokens")
    head, tokens = data[:begin], data[begin:]
    one = (1).to_bytes(8, "little")
    first, second = (tokens.index(one + piece) + 8 for piece in (b"!", b","))
    changed = bytearray(tokens)
    changed[first : first + 1], changed[second : second + 1] = b",", b"!"
    path.write_bytes(head + bytes(changed))
    return path


def refusals(tmp_path: Path) -> list[tuple[str, type[Exception], str]]:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(demo_draft_model_path().read_bytes()[:100_000])
    recurrent = tiny("qwen3next").write(tmp_path / "recurrent.gguf")
    return [
        (str(tmp_path / "none.gguf"), ModelError, r"speculation\.model: /.*/none\.gguf: No such file"),
        (str(cut), ModelError, r"speculation\.model: cut\.gguf: "),
        (
            str(other_vocabulary(tmp_path / "other.gguf")),
            ConfigError,
            r'speculation\.model: other\.gguf: token \d+ is ",", the model\'s is "!"',
        ),
        (
            str(demo_model_path()),
            ConfigError,
            r"speculation\.model: reads 3\.\d MiB a token, the model 3\.\d MiB: expected less",
        ),
        (str(recurrent), ConfigError, r"speculation\.model: recurrent\.gguf: "),
    ]


def test_spc_16_spc_29_a_draft_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    for path, kind, message in refusals(tmp_path):
        with pytest.raises(kind, match=message):
            imp_service.load(None, MODEL, f"speculation.model={path}")


def test_spc_29_spc_48_a_draft_with_a_recurrent_state_scores_prompts_but_does_not_guess(tmp_path: Path) -> None:
    """Where nothing asks it to score, the load refuses it. It needs room for two states."""
    model = _core.open_model_file(tiny("qwen3", n_layers=8).write(tmp_path / "model.gguf"))
    draft = _core.open_model_file(tiny("qwen35", n_layers=4).write(tmp_path / "draft.gguf"))
    with pytest.raises(
        ModelError, match=r"speculation\.model: draft\.gguf: has layers with a recurrent state"
    ) as found:
        _core.Model.load(model, draft=draft, kv_bytes=1 << 20)
    assert found.value.reason == "MODEL_UNSUPPORTED"
    plain = _core.open_model_file(tiny("qwen3", n_layers=1).write(tmp_path / "plain.gguf"))
    for file, guesses in ((draft, False), (plain, True)):
        loaded = _core.Model.load(model, draft=file, draft_scores_prompts=True, kv_bytes=1 << 20)
        assert loaded.draft is not None and loaded.draft["guesses"] == guesses
        text = drafters_text(read_settings(None, [MODEL]), loaded.draft, "draft.gguf", None)
        assert text.startswith("model: draft.gguf, a guess" if guesses else "model: none, draft.gguf has a recurrent")


def test_spc_29_too_little_memory_names_the_draft_s_items() -> None:
    with pytest.raises(ResourceExhausted, match=r"draft weights .*, draft kv .*; in all") as raised:
        imp_service.load(None, MODEL, "speculation.kv_bytes=60TiB")
    assert raised.value.reason == "NO_MEMORY"


def test_spc_29_a_draft_that_hardly_pays_is_a_warning(tmp_path: Path) -> None:
    """The draft has more than half of the weights that the model reads for a token."""
    model, draft = tiny("qwen3", n_layers=4), tiny("qwen3", n_layers=3)
    loaded = _core.Model.load(
        _core.open_model_file(model.write(tmp_path / "model.gguf")),
        draft=_core.open_model_file(draft.write(tmp_path / "draft.gguf")), kv_bytes=1 << 20,
    )  # fmt: skip
    assert [text for text in loaded.warnings if "speculation.model: reads" in text and "speedup will be small" in text]
