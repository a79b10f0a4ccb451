"""Every kind of generation stops at every token that ends a text."""

from __future__ import annotations

from pathlib import Path

import pytest

import imp_service
from imp_service import (
    ConstraintKind,
    ConstraintSpec,
    GenerationRequest,
    LanguageModel,
    SamplingOptions,
    StepOptions,
    StopOptions,
)
from imp_service.api.replies import Finished
from imp_service.generation import Generation
from imp_service.rpc.imp_v1.model import write_model_info
from imp_service.serving.served_model import ServedModel
from support.models.worded_models import write_worded

# The control tokens of published vocabularies, the file's eos token, and all end tokens.
VOCABULARIES = {
    "llama 3, eos 128001": (
        ["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"],
        "<|end_of_text|>",
        {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"},
    ),
    "gemma, eos 1": (["<pad>", "<eos>", "<bos>", "<end_of_turn>"], "<eos>", {"<eos>", "<end_of_turn>"}),
    "chatml on llama 2": (["<s>", "</s>", "<|im_start|>", "<|im_end|>"], "</s>", {"</s>", "<|im_end|>"}),
    "chatml, eos of the turn": (["<|endoftext|>", "<|im_end|>"], "<|im_end|>", {"<|endoftext|>", "<|im_end|>"}),
    "phi 3": (["</s>", "<|endoftext|>", "<|end|>"], "<|endoftext|>", {"</s>", "<|endoftext|>", "<|end|>"}),
    "code llama": (["<s>", "</s>", "_<EOT>"], "</s>", {"</s>", "_<EOT>"}),
    "harmony": (["<|end|>", "<|return|>", "<|call|>"], "<|return|>", {"<|return|>", "<|call|>"}),
    "no key": (["<|endoftext|>", "</s>", "<other>"], None, {"<|endoftext|>", "</s>"}),
}
CASES = [(name, end) for name, (_, _, ends) in VOCABULARIES.items() for end in sorted(ends)]


def _load(folder: Path, name: str, *settings: str) -> tuple[LanguageModel, dict[str, int]]:
    control, eos, _ = VOCABULARIES[name]
    ids = write_worded(folder / "m.gguf", control, eos=eos)
    return imp_service.load(folder / "m.gguf", "device.threads=1", *settings), ids


def _forced(token: int) -> SamplingOptions:
    return SamplingOptions(temperature=0.0, logit_bias={token: 100.0})


def _end_of(generation: Generation) -> Finished:
    with generation:
        last = list(generation)[-1]
    assert isinstance(last, Finished)
    return last


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "end"), CASES)
def test_txt_29_every_way_stops_at_every_end(tmp_path: Path, name: str, end: str) -> None:
    model, ids = _load(tmp_path, name)
    token = ids[end]
    with model:
        finished = _end_of(
            model.generate(GenerationRequest([97], sampling=_forced(token), stop=StopOptions(max_tokens=5)))
        )
        assert (finished.reason, finished.usage and finished.usage.output_tokens) == ("stop", 0)
        assert finished.match is not None and finished.match.eos_token_id == token
        with model.open(_forced(token)) as session:
            assert session.prefill([97]).eos and session.decode_step([98]).eos
            assert not session.decode_step([98], StepOptions(allowed_token_mask=_only(97, model.vocab_size))).eos
        constrained = GenerationRequest(
            [97], sampling=_forced(token), constraint=ConstraintSpec(ConstraintKind.REGEX, "a*")
        )
        finished = _end_of(model.generate(constrained))
        assert finished.match is not None and (finished.reason, finished.match.eos_token_id) == ("stop", token)
        runtime = model._runtime
        assert token in write_model_info(runtime, ServedModel.of(runtime, runtime.config.settings), "").eos_token_ids


@pytest.mark.few(4)
@pytest.mark.parametrize("name", VOCABULARIES)
def test_txt_29_no_other_token_ends(tmp_path: Path, name: str) -> None:
    _, _, ends = VOCABULARIES[name]
    model, ids = _load(tmp_path, name)
    with model:
        assert {text for text, token in ids.items() if token in model.eos_token_ids} == ends
        for token in {97, *ids.values()} - {ids[end] for end in ends}:
            request = GenerationRequest([97], sampling=_forced(token), stop=StopOptions(max_tokens=2))
            assert _end_of(model.generate(request)).reason == "max_tokens"


def test_txt_29_settings_replace_the_ends(tmp_path: Path) -> None:
    model, ids = _load(tmp_path, "llama 3, eos 128001", "model.overrides.eos_token_ids=[97]")
    with model:
        assert model.eos_token_ids == [97]
        for token, reason in ((97, "stop"), (ids["<|eot_id|>"], "max_tokens")):
            request = GenerationRequest([98], sampling=_forced(token), stop=StopOptions(max_tokens=2))
            assert _end_of(model.generate(request)).reason == reason


def _only(token: int, vocab_size: int) -> bytes:
    mask = bytearray((vocab_size + 7) // 8)
    mask[token // 8] |= 1 << token % 8
    return bytes(mask)
