"""Gemma 4's assistants guess as those of `transformers`, over the cells of the same model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from support.files.hf_weights import fill
from support.models.family_cases import CASES, SIZES, FamilyCase, bound, text_part
from support.models.forward_runs import distance, prompt
from support.models.head_runs import guesses, load_path

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

CHAIN = [7, 3, 11, 2]
N_CLUSTERS = 53  # as many as tokens
# What the configuration of a model says of its layers alone.
OF_LAYERS = ("num_hidden_layers", "layer_types", "num_kv_shared_layers", "hidden_size", "intermediate_size",
             "hidden_size_per_layer_input", "vocab_size_per_layer_input", "use_double_wide_mlp")  # fmt: skip
KINDS = {"gemma4_e2b": 20, "gemma4_31b": 0}
"""The models, with the number of clusters of which their assistants score the tokens; 0: all."""


def assistant_of(case: FamilyCase, n_clusters_used: int) -> Any:
    """An assistant with other numbers in every parameter."""
    text = {name: value for name, value in (SIZES | case.traits).items() if name not in OF_LAYERS}
    text |= {
        "num_hidden_layers": 3, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "hidden_size": 24, "intermediate_size": 56, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
        "final_logit_softcapping": None,
    }  # fmt: skip
    config = transformers.Gemma4AssistantConfig(
        text_config=text, backbone_hidden_size=SIZES["hidden_size"], use_ordered_embeddings=n_clusters_used > 0,
        num_centroids=N_CLUSTERS, centroid_intermediate_top_k=n_clusters_used or 32,
    )  # fmt: skip
    assistant = transformers.Gemma4AssistantForCausalLM(config).eval()
    fill(assistant)
    if n_clusters_used:
        ordering = assistant.masked_embedding.token_ordering
        ordering.copy_(torch.randperm(len(ordering), generator=torch.Generator().manual_seed(5)))
    return assistant


def peer_guesses(peer: Any, assistant: Any, tokens: Sequence[int], chain: Sequence[int], position: int) -> Any:
    """As generate() computes them, of the cells that the window of the model lets the last row see."""
    part = text_part(peer)
    found = []
    with torch.no_grad():
        given = torch.tensor([list(tokens[:-1])])
        out = part(input_ids=given, return_shared_kv_states=True, use_cache=False)
        window = peer.config.get_text_config().sliding_window
        cells = dict(out.shared_kv_states)
        cells["sliding_attention"] = tuple(each[:, :, -window:] for each in cells["sliding_attention"])
        hidden = out.last_hidden_state[:, -1:]
        for token in [tokens[-1], *chain]:
            embedded = part.get_input_embeddings()(torch.tensor([[token]]))
            guess = assistant(
                inputs_embeds=torch.cat([embedded, hidden], dim=-1), position_ids=torch.tensor([[position]]),
                shared_kv_states=cells, attention_mask=None,
            )  # fmt: skip
            found.append(guess.logits[0, 0].double().numpy())
            hidden = guess.last_hidden_state
    return np.array(found)


def scored(got: NDArray[np.float32], expected: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both without the tokens that have no score. They have one value in the reference, below all others."""
    has_score = expected > expected.min(axis=1, keepdims=True) if (got < -1e29).any() else np.ones_like(got, bool)
    assert np.array_equal(got > -1e29, has_score)
    return got[has_score], expected[has_score]


@pytest.mark.parametrize("n_tokens", [5, 60])
@pytest.mark.parametrize("name", KINDS)
def test_spd_13_assistants_equal_transformers(name: str, n_tokens: int, tmp_path: Path) -> None:
    """Those of a model whose last layers share keys and values, and of one whose values are keys."""
    peer = CASES[name].peer()
    assistant = assistant_of(CASES[name], KINDS[name])
    peer.save_pretrained(tmp_path / "model")
    assistant.save_pretrained(tmp_path / "assistant")
    tokens = prompt(n_tokens, 53)
    model = load_path(tmp_path / "model", tmp_path / "assistant")
    assert model.head == "assistant"
    got = guesses(model, tokens, CHAIN)
    expected = peer_guesses(peer, assistant, tokens, CHAIN, n_tokens - 1)
    assert distance(*scored(got, expected)) < bound(peer)
    # The controls: tokens in other clusters, or another position.
    if KINDS[name] > 0:
        ordering = assistant.masked_embedding.token_ordering
        ordering.copy_(ordering.roll(1))
        other = peer_guesses(peer, assistant, tokens, CHAIN, n_tokens - 1)
        assert not np.array_equal(got > -1e29, other > other.min(axis=1, keepdims=True))
    else:
        other = peer_guesses(peer, assistant, tokens, CHAIN, n_tokens)
        assert distance(*scored(got, other)) > 4 * bound(peer)
