"""Loads tiny models with draft heads, and runs the heads by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imp_service import _core, _testing
from support.models.forward_runs import overrides
from support.models.tiny_assistant import TinyAssistant, tiny_assistant
from support.models.tiny_heads import TinyEagle, TinyNextN
from support.models.tiny_models import tiny
from support.oracles.forward_bounds import float32_bound

Head = TinyNextN | TinyEagle | TinyAssistant
HEADS: dict[str, Head] = {
    "nextn_qwen3": TinyNextN(tiny("qwen3")),
    "nextn_llama": TinyNextN(tiny("llama")),
    "nextn_qwen2": TinyNextN(tiny("qwen2")),
    "nextn_with_the_models_norm": TinyNextN(tiny("qwen3"), has_own_norm=False),
    "nextn_with_all_of_its_own": TinyNextN(tiny("llama"), has_own_head=True, has_own_embedding=True),
    "nextn_tied": TinyNextN(tiny("llama", tied=True)),
    "nextn_experts": TinyNextN(tiny("llama", n_experts=4)),
    # The layer after seven is one with attention, as the head's is.
    "nextn_qwen35": TinyNextN(tiny("qwen35", n_layers=7)),
    "nextn_qwen35moe": TinyNextN(tiny("qwen35moe", n_layers=7)),
    "nextn_qwen3next": TinyNextN(tiny("qwen3next", n_layers=7)),
    "eagle_llama": TinyEagle(tiny("llama", n_layers=5)),
    "eagle_qwen2": TinyEagle(tiny("qwen2", n_layers=5)),
    "eagle_qwen3": TinyEagle(tiny("qwen3", n_layers=6)),
    "eagle_qwen3moe": TinyEagle(tiny("qwen3moe", n_layers=5)),
    "eagle_qwen35": TinyEagle(tiny("qwen35")),
    "eagle_taps": TinyEagle(tiny("llama", n_layers=5), taps=(0, 1, 5)),
    "eagle_other_prefix": TinyEagle(tiny("llama", n_layers=5), prefix="layers.0."),
    "eagle_norms_taps": TinyEagle(tiny("llama", n_layers=5), norms_taps=True),
    "eagle_normed_residual": TinyEagle(tiny("llama", n_layers=5), residual_is_normed=True),
    "eagle_embedding": TinyEagle(tiny("llama", n_layers=5), has_own_embedding=True),
    "eagle_bias": TinyEagle(tiny("llama", n_layers=5), has_bias=True),
    "eagle_all_tokens": TinyEagle(tiny("llama", n_layers=5), n_rows=tiny("llama").vocab_size),
    "assistant": tiny_assistant(),
    "assistant_of_a_dense_model": tiny_assistant(n_experts=0, layer_embedding=0, n_sharing=0, n_layers=4),
}


def bound_of(head: Head) -> float:
    """The largest error of a head's logits, relative to their root mean square."""
    if isinstance(head, TinyAssistant):
        return float32_bound(head.model) + float32_bound(head.stack)
    return float32_bound(head.model) if head.model.family.linear_period else 1e-5


def load_path(model: Path, head: Path | None = None, *, device: str = "cpu", **given: Any) -> Any:
    names = ("deterministic", "unvalidated_kernels", "kv_dtype")
    changes = {"kv_dtype": "f32", **{name: given.pop(name) for name in names if name in given}}
    return _core.Model.load(
        _core.open_model_file(model), overrides=overrides(**changes), device=device, threads=1,
        **{"max_rows": 512, "max_logits_rows": 64, "kv_bytes": 1 << 20, "with_own_head": True, **given},
        head_file=None if head is None else _core.open_model_file(head),
    )  # fmt: skip


def load_head(head: Head, folder: Path, **given: Any) -> Any:
    if isinstance(head, TinyNextN):
        return load_path(head.write(folder / "m.gguf"), **given)
    own = "head.gguf" if isinstance(head, TinyAssistant) else "head"
    return load_path(head.model.write(folder / "m.gguf"), head.write(folder / own), **given)


def guesses(model: Any, tokens: Sequence[int], chain: Sequence[int], chunk: int = 512) -> NDArray[np.float32]:
    """The logits of the token after `tokens`, and then of those after each token of the chain."""
    if model.head == "assistant":
        return assistant_guesses(_testing.HeadForward(model, 8), tokens, chain, chunk)
    head = _testing.HeadForward(model, 8)
    n = len(tokens) - 1
    for at in range(0, n, chunk):
        part = list(tokens[at : min(at + chunk, n)])
        head.evaluate(part, at)
        head.observe(tokens[at + 1 : at + 1 + len(part)], at, range(len(part)))
    rows = [head.guess([(n - 1) % chunk], [n - 1])[0]]
    for i, token in enumerate(chain):
        head.observe_guesses(token, n + i, 0)
        rows.append(head.guess([0], [n + i])[0])
    return np.array(rows)


def assistant_guesses(head: Any, tokens: Sequence[int], chain: Sequence[int], chunk: int) -> NDArray[np.float32]:
    """The same of a head that reads the cells of its model: all guesses stand behind the last one."""
    n = len(tokens) - 1
    for at in range(0, n, chunk):
        head.evaluate(list(tokens[at : min(at + chunk, n)]), at)
    head.observe([tokens[-1]], n - 1, [(n - 1) % chunk])
    rows = [head.guess([0], [n], [n - 1])[0]]
    for token in chain:
        head.observe_guesses(token, n, 0)
        rows.append(head.guess([0], [n], [n - 1])[0])
    return np.array(rows)
