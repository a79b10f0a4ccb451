"""Tiny models that make vectors of texts, as `transformers` knows them, and how to turn each of their facts off."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.hf_weights import fill
from support.models.forward_runs import prompt

VOCABULARY = 53
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 72, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 128, "attn_implementation": "eager", "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LENGTHS = (1, 7, 40, 90)
TurnOff = Callable[[Any], None]
Vectors = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Text:
    tokens: list[int]
    second: int = -1  # tokens from here on have type 1; -1: none has

    @property
    def types(self) -> list[int]:
        return [int(0 <= self.second <= i) for i in range(len(self.tokens))]


@dataclasses.dataclass(frozen=True)
class TextCase:
    model: str  # its class
    config: str  # the class of its configuration
    traits: dict[str, Any]  # what the configuration adds to SIZES
    pooling: str
    architecture: str  # in GGUF
    keys: dict[str, Any] = dataclasses.field(default_factory=dict)  # of GGUF other than the sizes
    off: dict[str, TurnOff] = dataclasses.field(default_factory=dict)
    has_types: bool = False

    def peer(self) -> Any:
        """Returns the model of transformers, with other numbers in every parameter."""
        import torch
        import transformers

        torch.set_num_threads(1)  # products this small take longer on several
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        config = getattr(transformers, self.config)(**copy.deepcopy(SIZES | self.traits))
        model = getattr(transformers, self.model)(config).eval()
        fill(model)
        return model

    @property
    def texts(self) -> list[Text]:
        found = [Text(prompt(n, VOCABULARY - 3, seed=n)) for n in LENGTHS]
        for text in found:
            text.tokens[:] = [token + 3 for token in text.tokens]  # transformers counts no positions of padding
        return [*found, Text(found[2].tokens, second=11)] if self.has_types else found


def rows_of(peer: Any, text: Text, has_types: bool) -> Vectors:
    """Returns what the peer has behind its last layer; the score of a reranker."""
    import torch

    given = {"input_ids": torch.tensor([text.tokens])}
    if has_types:
        given["token_type_ids"] = torch.tensor([text.types])
    with torch.no_grad():
        found = peer(**given)
    rows = found.logits if hasattr(found, "logits") else found.last_hidden_state[0]
    result: Vectors = rows.double().numpy()
    return result


def pooled(rows: Vectors, pooling: str) -> Vectors:
    if pooling == "mean":
        return rows.mean(axis=0)
    return rows[-1 if pooling == "last" else 0]


def peer_vectors(case: TextCase, peer: Any) -> Vectors:
    return np.array([pooled(rows_of(peer, text, case.has_types), case.pooling) for text in case.texts])


def in_layers(name: str, change: Callable[[Any], Any]) -> TurnOff:
    """Replaces every module of this name."""

    def turn_off(peer: Any) -> None:
        for module in list(peer.modules()):
            if hasattr(module, name):
                setattr(module, name, change(getattr(module, name)))

    return turn_off


def with_activation(name: str, kind: str) -> TurnOff:
    def change(_: Any) -> Any:
        import torch

        return torch.nn.SiLU() if kind == "silu" else torch.nn.GELU(approximate=kind)

    return in_layers(name, change)


def without_norm(name: str) -> TurnOff:
    def change(_: Any) -> Any:
        import torch

        return torch.nn.Identity()

    return in_layers(name, change)


def with_other_rows(name: str) -> TurnOff:
    """Each row of a table has the numbers of the next one."""

    def turn_off(peer: Any) -> None:
        import torch

        with torch.no_grad():
            for module in peer.modules():
                if hasattr(module, name):
                    table = getattr(module, name).weight
                    table.copy_(table.roll(-1, 0))

    return turn_off


def configured(**changes: Any) -> TurnOff:
    def turn_off(peer: Any) -> None:
        for name, value in changes.items():
            setattr(peer.config, name, value)

    return turn_off


def causal(peer: Any) -> None:
    """Rows see only what is before them."""
    for module in peer.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = True
    peer.config.is_decoder = True


BERT_OFF: dict[str, TurnOff] = {
    "gelu by erf": with_activation("intermediate_act_fn", "tanh"),
    "token types": with_other_rows("token_type_embeddings"),
    "positions": with_other_rows("position_embeddings"),
    "both sides": causal,
}
ROBERTA_OFF: dict[str, TurnOff] = {name: off for name, off in BERT_OFF.items() if name != "token types"}
ROBERTA = {"pad_token_id": 1, "type_vocab_size": 1}
BERT_KEYS = {"attention.causal": False}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}
_S, _F = "sliding_attention", "full_attention"
GEMMA_ROPES = {_S: {"rope_type": "default", "rope_theta": 1e4}, _F: {"rope_type": "default", "rope_theta": 1e6}}
GEMMA = {
    "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 20,
    "use_bidirectional_attention": True, "layer_types": [_S, _F, _S], "rope_parameters": GEMMA_ROPES,
    "tie_word_embeddings": True,
}  # fmt: skip
GEMMA_KEYS = {
    "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "attention.sliding_window": 20,
    "attention.sliding_window_pattern": [True, False, True],
}  # fmt: skip
MODERN_ROPES = {_F: {"rope_type": "default", "rope_theta": 160000.0}, _S: {"rope_type": "default", "rope_theta": 1e4}}
MODERN = {"local_attention": 16, "rope_parameters": MODERN_ROPES, "num_hidden_layers": 4}
MODERN_KEYS = {
    "rope.freq_base": 160000.0, "rope.freq_base_swa": 1e4, "attention.sliding_window": 16,
    "attention.sliding_window_pattern": 3, "attention.causal": False,
}  # fmt: skip
QWEN3 = {"num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1e6, "tie_word_embeddings": True}

CASES: dict[str, TextCase] = {
    "bert": TextCase("BertModel", "BertConfig", {}, "mean", "bert", BERT_KEYS, BERT_OFF, has_types=True),
    "bert_cls": TextCase("BertModel", "BertConfig", {}, "cls", "bert", BERT_KEYS, has_types=True),
    "bert_rank": TextCase(
        "BertForSequenceClassification", "BertConfig", {"num_labels": 1}, "rank", "bert", BERT_KEYS, has_types=True
    ),
    "xlm_roberta": TextCase("XLMRobertaModel", "XLMRobertaConfig", ROBERTA, "mean", "bert", BERT_KEYS, ROBERTA_OFF),
    "roberta": TextCase("RobertaModel", "RobertaConfig", ROBERTA, "cls", "bert", BERT_KEYS),
    "xlm_roberta_rank": TextCase(
        "XLMRobertaForSequenceClassification", "XLMRobertaConfig", ROBERTA | {"num_labels": 1}, "rank", "bert",
        BERT_KEYS,
    ),
    "nomic_bert": TextCase(
        "NomicBertModel", "NomicBertConfig", ROPE, "mean", "nomic-bert", {"rope.freq_base": 1000.0, **BERT_KEYS},
        {"silu": with_activation("act_fn", "none"), "token types": with_other_rows("token_type_embeddings")},
        has_types=True,
    ),
    "qwen3": TextCase("Qwen3Model", "Qwen3Config", QWEN3, "last", "qwen3", {"rope.freq_base": 1e6}),
    "qwen3_mean": TextCase("Qwen3Model", "Qwen3Config", QWEN3, "mean", "qwen3", {"rope.freq_base": 1e6}),
    "gemma_embedding": TextCase(
        "Gemma3TextModel", "Gemma3TextConfig", GEMMA, "mean", "gemma-embedding", GEMMA_KEYS,
        {"norm of q": without_norm("q_norm")},
    ),
    "modernbert": TextCase(
        "ModernBertModel", "ModernBertConfig", MODERN, "mean", "modern-bert", MODERN_KEYS,
        {"gelu by erf": with_activation("act", "tanh")},
    ),
}  # fmt: skip
