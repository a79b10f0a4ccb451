"""The golden data of the built-in models, against a NumPy float64 forward without any code of their generator."""

import math
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from imp_service.models import demo_draft_model_path
from support.oracles import tolerances
from support.oracles.numpy_qwen3 import NumpyQwen3, log_likelihood

QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="module")
def tokenizer(numpy_model: NumpyQwen3) -> Tokenizer:
    """Returns the file's vocabulary, built only from its metadata."""
    tokens, merges = (numpy_model.facts[f"tokenizer.ggml.{key}"] for key in ("tokens", "merges"))
    built = Tokenizer(
        models.BPE({token: index for index, token in enumerate(tokens)}, [tuple(merge.split(" ")) for merge in merges])
    )
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(tokens[-3:])
    return built


def test_greedy_ids_and_margins(model_name: str, numpy_model: NumpyQwen3, golden: dict[str, Any]) -> None:
    for prompt in golden[model_name]["prompts"]:
        start, output = len(prompt["prompt_ids"]), prompt["output_ids"]
        logits = numpy_model.logits(prompt["prompt_ids"] + output)[start - 1 : -1]
        assert logits.argmax(axis=-1).tolist() == output, prompt["text"]
        best = np.sort(logits, axis=-1)[:, -2:]
        assert best[:, 1] - best[:, 0] == pytest.approx(prompt["margins"], abs=tolerances.GOLDEN_MARGIN)


def test_the_wrong_rope_layout_is_noticed(model_name: str, numpy_model: NumpyQwen3, golden: dict[str, Any]) -> None:
    prompt = golden[model_name]["prompts"][0]
    start, output = len(prompt["prompt_ids"]), prompt["output_ids"]
    logits = numpy_model.logits(prompt["prompt_ids"] + output, adjacent=True)[start - 1 : -1]
    assert logits.argmax(axis=-1).tolist() != output


def test_prompts_and_outputs_are_what_the_vocabulary_says(
    model_name: str, tokenizer: Tokenizer, golden: dict[str, Any]
) -> None:
    for prompt in golden[model_name]["prompts"]:
        assert tokenizer.encode(prompt["text"]).ids == prompt["prompt_ids"]
        assert tokenizer.decode(prompt["output_ids"]) == prompt["output_text"]


@pytest.mark.long
def test_bits_per_byte_of_the_held_out_text(
    model_name: str, numpy_model: NumpyQwen3, tokenizer: Tokenizer, golden: dict[str, Any], held_out: str
) -> None:
    ids = tokenizer.encode(held_out).ids
    end_of_text = tokenizer.token_to_id("<|endoftext|>")
    size = numpy_model.facts["qwen3.context_length"] - 1
    nats = 0.0
    for at in range(0, len(ids), size):
        window = ids[at : at + size]
        nats -= log_likelihood(numpy_model.logits([end_of_text, *window[:-1]]), window)
    expected = golden[model_name]["held_out"]
    assert (len(held_out.encode()), len(ids)) == (expected["n_bytes"], expected["n_tokens"])
    assert nats == pytest.approx(expected["nats"], rel=tolerances.GOLDEN_NATS)
    assert nats / math.log(2) / len(held_out.encode()) == pytest.approx(
        expected["bits_per_byte"], rel=tolerances.GOLDEN_NATS
    )


def test_chat_answers_end_their_turn(golden: dict[str, Any], numpy_model: NumpyQwen3) -> None:
    eos = numpy_model.facts["tokenizer.ggml.eos_token_id"]
    answers = [p["output_ids"] for p in golden["target"]["prompts"] if p["text"].startswith("<|im_start|>")]
    assert [answer[-1] for answer in answers] == [eos, eos]


def test_the_draft_agrees_along_the_targets_greedy_text(golden: dict[str, Any]) -> None:
    """Speculation needs a real pair: agreement by chance, or with an untrained draft, would be about one in 2048."""
    draft = NumpyQwen3.load(demo_draft_model_path())
    agreed = []
    for prompt in golden["target"]["prompts"]:
        start, output = len(prompt["prompt_ids"]), prompt["output_ids"]
        proposed = draft.logits(prompt["prompt_ids"] + output)[start - 1 : -1].argmax(axis=-1)
        agreed += (proposed == output).tolist()
    assert np.mean(agreed) > tolerances.DRAFT_AGREEMENT
