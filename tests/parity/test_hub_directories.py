"""A directory that transformers saves gives the same token ids, chat prompts and greedy tokens in imp."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

import imp_service
from imp_service import ChatMessage, ChatPrompt, LanguageModel
from support.files.hf_weights import fill
from support.models.linear_attention_cases import LINEAR_CASES
from support.text.chat_templates import CHATML, GEMMA, LLAMA3, MISTRAL, PHI3, TOOLS
from support.text.hub_tokenizers import KINDS, random_texts

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES = {
    "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "attn_implementation": "eager",
    "tie_word_embeddings": False,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A family, its tokenizer with additional special tokens, and its chat template."""

    architecture: str
    config: str
    kind: str
    template: str
    special: tuple[str, ...]
    eos: str
    bos: str | None = None
    # Whether the special tokens strip the white space after them.
    strips: bool = False
    padding: int = 0
    # The configuration of the vision tower, if the model has one.
    vision: dict[str, Any] | None = None
    traits: dict[str, Any] = field(default_factory=dict)  # keys of the configuration in addition to SIZES
    seed: int = 0  # seed of the weights, chosen so that the generated text does not repeat itself at once


TOWER = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
MERGED = {"out_hidden_size": 40, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 4}
_WINDOWED, _FULL = "sliding_attention", "full_attention"
# Some layers share keys and values, and each layer has its own embedding.
GEMMA4 = {
    "num_hidden_layers": 6, "layer_types": [_WINDOWED, _FULL] * 3, "sliding_window": 8, "num_kv_shared_layers": 2,
    "global_head_dim": 32, "hidden_size_per_layer_input": 24, "use_double_wide_mlp": True,
}  # fmt: skip

CASES = {
    "qwen3": Case("Qwen3ForCausalLM", "Qwen3Config", "byte level", TOOLS, (), "<|im_end|>", padding=11),
    "qwen3.5": Case(
        "Qwen3_5ForCausalLM", "Qwen3_5TextConfig", "byte level", TOOLS, (), "<|im_end|>",
        traits=LINEAR_CASES["qwen3_5_grouped"].traits | {"tie_word_embeddings": False},
    ),
    "llama 3": Case(
        "LlamaForCausalLM", "LlamaConfig", "byte level, llama 3", LLAMA3,
        ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>", "<|begin_of_text|>",
    ),
    "llama 2": Case("LlamaForCausalLM", "LlamaConfig", "pairs, prepended", CHATML, (), "</s>", "<s>"),
    "mistral": Case(
        "MistralForCausalLM", "MistralConfig", "pairs, first", MISTRAL, ("[INST]", "[/INST]"), "</s>", "<s>",
    ),
    "gemma": Case(
        "Gemma3ForCausalLM", "Gemma3TextConfig", "pairs, never", GEMMA, ("<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>", "<s>",
    ),
    "gemma 4": Case(
        "Gemma4ForCausalLM", "Gemma4TextConfig", "pairs, never", GEMMA, ("<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>", "<s>", traits=GEMMA4,
    ),
    "phi": Case(
        "MistralForCausalLM", "MistralConfig", "pairs, prepended", PHI3,
        ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>"), "<|end|>", "<s>", strips=True,
    ),
    "gpt-oss": Case(
        "GptOssForCausalLM", "GptOssConfig", "byte level, gpt-4o", CHATML, (), "<|im_end|>", padding=7,
        traits={"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 20}, seed=1,
    ),
    "gemma3 that sees": Case(
        "Gemma3ForConditionalGeneration", "Gemma3Config", "pairs, never", GEMMA,
        ("<start_of_turn>", "<end_of_turn>"), "<end_of_turn>", "<s>",
        vision={**TOWER, "image_size": 28, "patch_size": 14},
    ),
    "mistral3 that sees": Case(
        "Mistral3ForConditionalGeneration", "Mistral3Config", "pairs, first", MISTRAL, ("[INST]", "[/INST]"),
        "</s>", "<s>", vision={**TOWER, "model_type": "pixtral", "head_dim": 8, "image_size": 28, "patch_size": 14},
    ),
    "qwen3-vl": Case(
        "Qwen3VLForConditionalGeneration", "Qwen3VLConfig", "byte level", TOOLS, (), "<|im_end|>", padding=11,
        vision={**TOWER, **MERGED, "depth": 1, "num_heads": 2, "patch_size": 14, "deepstack_visual_indexes": [0]},
    ),
}  # fmt: skip
USER = [{"role": "user", "content": "Hello there"}]
SYSTEM = [{"role": "system", "content": "Be brief."}, *USER]
TURNS = [
    *USER,
    {"role": "assistant", "content": "  Good day!\n"},
    {"role": "user", "content": "\u4e16\u754c \U0001f600  "},
]
FIND = {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": {"a": 1}}}],
}
CONVERSATIONS: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [
    (USER, []),
    (SYSTEM, []),
    (TURNS, []),
    ([*SYSTEM, *TURNS[1:]], []),
    ([{"role": "user", "content": ""}], []),
    ([{"role": "user", "content": "e\u0301 \ufb01 1234 don't\t\t\n\n x"}], []),
    ([{"role": "user", "content": "x" * 300}], []),
    (USER, [FIND]),
    (SYSTEM, [FIND, FIND]),
    ([*USER, CALL, {"role": "tool", "content": "{\"a\": 1}"}], [FIND]),
]  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A directory loaded in imp and in transformers."""

    ours: LanguageModel
    tokenizer: Any
    peer: Any
    folder: Path


def library_of(case: Case) -> Tokenizer:
    library = KINDS[case.kind]()
    added = [AddedToken(text, normalized=False, special=True, rstrip=case.strips) for text in case.special]
    library.add_special_tokens(added)
    return library


def config_of(case: Case, sizes: dict[str, Any]) -> Any:
    """Returns the configuration of transformers for a case."""
    kind = getattr(transformers, case.config)
    if case.vision is None:
        return kind(**sizes)
    text = {name: value for name, value in sizes.items() if name != "attn_implementation"}
    if case.config == "Qwen3VLConfig":
        text["rope_parameters"] = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 10000.0}
    elif case.config == "Mistral3Config":
        text["model_type"] = "mistral"
    return kind(text_config=text, vision_config=case.vision, tie_word_embeddings=False, attn_implementation="eager")


def write(case: Case, folder: Path, seed: int = 0) -> tuple[Any, Any]:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    library = library_of(case)
    named = {"eos_token": case.eos, "bos_token": case.bos} if case.bos else {"eos_token": case.eos}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=library, **named)
    tokenizer.chat_template = case.template
    tokenizer.save_pretrained(folder)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    n_rows = library.get_vocab_size() + case.padding
    per_layer = {"vocab_size_per_layer_input": n_rows} if case.traits is GEMMA4 else {}
    sizes = (
        SIZES
        | case.traits
        | per_layer
        | {
            "vocab_size": n_rows,
            "eos_token_id": library.token_to_id(case.eos),
            "bos_token_id": None if case.bos is None else library.token_to_id(case.bos),
            "pad_token_id": None,
        }
    )
    peer = getattr(transformers, case.architecture)(config_of(case, sizes)).eval()
    fill(peer, seed + case.seed)
    peer.save_pretrained(folder)
    return tokenizer, peer


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("hub") / "model"
    tokenizer, peer = write(CASES[request.param], folder)
    with imp_service.load(folder, "device.threads=1", "kv.dtype=f32", "model.vision=false") as ours:
        # The warning lists the tensors of the vision tower and of its projector.
        if CASES[request.param].vision is None:
            assert ours.warnings == ()
        else:
            [warning] = ours.warnings
            assert "tensors are not part of the model and not read: " in warning
        yield Pair(ours, tokenizer, peer, folder)


@pytest.mark.few(1)
def test_hub_9_ids_are_those_of_transformers(pair: Pair) -> None:
    spelled = [*pair.tokenizer.get_added_vocab(), "x"]
    for text in random_texts(500, seed=11, spelled=spelled):
        for added in (True, False):
            expected = pair.tokenizer(text, add_special_tokens=added)["input_ids"]
            assert pair.ours.tokenize(text, add_special_tokens=added, parse_special_tokens=True) == expected, text


def chat_of(messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, asks: bool) -> ChatPrompt:
    return ChatPrompt(
        tuple(
            ChatMessage(
                each["role"],
                each["content"],
                tool_calls_json=json.dumps(each["tool_calls"]) if "tool_calls" in each else "",
            )
            for each in messages
        ),
        json.dumps(tools) if tools else "",
        add_generation_prompt=asks,
    )


@pytest.mark.few(6)
def test_hub_9_prompts_of_conversations_are_those_of_transformers(pair: Pair) -> None:
    n_rendered = 0
    for messages, tools in CONVERSATIONS:
        for asks in (True, False):
            chat = chat_of(messages, tools, asks=asks)
            arguments: dict[str, Any] = {"tools": tools or None, "add_generation_prompt": asks}
            try:
                expected = pair.tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
            except Exception:
                # A template that refuses tools never sees them, because imp writes them itself (TOL-6).
                if not tools:
                    with pytest.raises(imp_service.InvalidArgument):
                        pair.ours.chat(chat, max_tokens=1)
                continue
            text = pair.ours._runtime.text
            if any(tool["function"]["name"] not in expected for tool in tools):
                # The template leaves the tools out, so imp writes them too.
                assert all(tool["function"]["name"] in text.render(chat).text for tool in tools)
                n_rendered += 1
                continue
            assert text.render(chat).text == expected
            ids = pair.tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **arguments)
            assert text.chat_ids(chat) == ids
            n_rendered += 1
    assert n_rendered >= 8


def generated(tokenizer: Any, peer: Any, ids: list[int], n_tokens: int, ends: list[int]) -> list[int]:
    """Returns the greedy tokens of transformers, without ids that the tokenizer does not have."""
    n_rows = peer.config.get_text_config().vocab_size
    beyond = list(range(len(tokenizer), n_rows)) or None
    options = {
        "do_sample": False,
        "suppress_tokens": beyond,
        "eos_token_id": ends or [n_rows],
    }
    with torch.no_grad():
        sequences = peer.generate(torch.tensor([ids]), max_new_tokens=n_tokens, **options)
    return sequences[0].tolist()[len(ids) :]


@pytest.mark.sweep(quick=lambda pair: pair in ("qwen3", "gemma", "qwen3-vl"))
def test_hub_9_greedy_tokens_are_those_of_transformers(pair: Pair) -> None:
    for prompt in ("Hello world", "\u4e16\u754c", "don't 1234"):
        ids = pair.tokenizer(prompt)["input_ids"]
        expected = generated(pair.tokenizer, pair.peer, ids, 24, pair.ours.eos_token_ids)
        found = pair.ours.generate(prompt, max_tokens=24, temperature=0).result()
        ends = expected[-1] in pair.ours.eos_token_ids
        assert list(found.token_ids) == (expected[:-1] if ends else expected)
        assert found.finish_reason == ("stop" if ends else "max_tokens")
    messages = USER
    ids = pair.tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    found = pair.ours.chat(messages, max_tokens=16, temperature=0).result()
    expected = generated(pair.tokenizer, pair.peer, ids, 16, pair.ours.eos_token_ids)
    assert list(found.token_ids) == [token for token in expected if token not in pair.ours.eos_token_ids]


@pytest.mark.few(3)
def test_hub_9_a_turn_ends_where_transformers_ends_it(pair: Pair) -> None:
    free = generated(pair.tokenizer, pair.peer, pair.tokenizer("Hello world")["input_ids"], 16, [])
    end = next(token for token in free[4:] if token not in free[:4])
    (pair.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, free[9]]}))
    with imp_service.load(pair.folder, "device.threads=1", "kv.dtype=f32", "model.vision=false") as model:
        found = model.generate("Hello world", max_tokens=16, temperature=0).result()
        cut = next(i for i, token in enumerate(free) if token in model.eos_token_ids)
    assert cut <= 9 and {end, free[9]} <= set(model.eos_token_ids)
    assert (list(found.token_ids), found.finish_reason) == (free[:cut], "stop")


@pytest.mark.long
def test_hub_9_hon_1_another_template_or_another_weight_is_seen(tmp_path: Path) -> None:
    case = CASES["qwen3"]
    tokenizer, peer = write(case, tmp_path / "model")
    ids = tokenizer("Hello world")["input_ids"]
    expected = generated(tokenizer, peer, ids, 24, [tokenizer.eos_token_id])
    prompt = tokenizer.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
    write(case, tmp_path / "model", seed=1)
    template = tmp_path / "model" / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant", "helper"))
    with imp_service.load(tmp_path / "model", "device.threads=1") as other:
        assert list(other.generate("Hello world", max_tokens=24, temperature=0).result().token_ids) != expected
        assert other._runtime.text.render(chat_of(USER, [], asks=True)).text != prompt
