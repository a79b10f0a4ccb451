"""Families that read images, as `transformers` runs their decoders, and how to turn each of their facts off."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.models.cell_prompts import GRIDS, PLACEHOLDER, CellPrompt, cell_prompt, centred
from support.models.family_cases import CASES, SIZES, FamilyCase, TurnOff
from support.models.family_variants import WRAPPED


def peer_rows(peer: Any, prompt: CellPrompt) -> NDArray[np.float64]:
    """Returns the centred logits of `CellPrompt.scored`. The library places the rows, and makes positions and masks."""
    import torch
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    ids = torch.tensor([prompt.tokens])
    kind, width = peer.config.model_type, peer.config.get_text_config().hidden_size
    given: dict[str, Any] = {}
    if prompt.rows:
        given["token_type_ids" if kind == "gemma3" else "mm_token_type_ids"] = (ids == PLACEHOLDER).int()
        parts = [torch.from_numpy(rows).split(width, dim=1) for rows in prompt.rows]
        first, *others = (list(part) for part in zip(*parts, strict=True))
        pooled = torch.cat(first) if kind == "gemma3" else first
        given["mm_encoder_outputs"] = {"image": BaseModelOutputWithPooling(pooler_output=pooled)}
        given["mm_encoder_outputs"]["image"].deepstack_features = others
        if kind.startswith("qwen"):
            merged = peer.config.vision_config.spatial_merge_size
            given["image_grid_thw"] = torch.tensor([[1, merged * rows, merged * cols] for rows, cols in prompt.grids])
    with torch.no_grad():
        logits = peer(input_ids=ids, **given).logits[0].double().numpy()
    return centred(logits[prompt.scored])


def with_planes_swapped(peer: Any) -> None:
    whole = peer.model.get_vision_position_ids
    peer.model.get_vision_position_ids = lambda *args, **given: whole(*args, **given)[[0, 2, 1]]


def with_positions_of_text(peer: Any) -> None:
    peer.model.compute_3d_position_ids = lambda **_: None


def before_layers(change: Callable[[dict[str, Any]], None]) -> TurnOff:
    """Changes what the decoder gets."""

    def turn_off(peer: Any) -> None:
        decoder = peer.model.language_model
        whole = decoder.forward

        def forward(**given: Any) -> Any:
            change(given)
            return whole(**given)

        decoder.forward = forward

    return turn_off


def _without_deepstack(given: dict[str, Any]) -> None:
    given["deepstack_visual_embeds"] = None


def _with_other_order(given: dict[str, Any]) -> None:
    given["deepstack_visual_embeds"].reverse()


def _causal(*kinds: str) -> Callable[[dict[str, Any]], None]:
    """In the layers of these kinds a cell sees none behind it."""

    def change(given: dict[str, Any]) -> None:
        import torch

        for kind in kinds:
            mask = given["attention_mask"][kind]
            behind = torch.ones(mask.shape[-2:], dtype=torch.bool).triu(1)
            given["attention_mask"][kind] = mask.masked_fill(behind, torch.finfo(mask.dtype).min)

    return change


def _ahead_in_all_layers(given: dict[str, Any]) -> None:
    """Layers without a window see what those with one see ahead, too."""
    masks = given["attention_mask"]
    masks["full_attention"] = masks["full_attention"].maximum(masks["sliding_attention"])


def with_another_padding_token(peer: Any) -> None:
    peer.config.text_config.pad_token_id = 5


def that_sees_ahead(peer: Any) -> None:
    peer.config.text_config.use_bidirectional_attention = "vision"


PLANES_OFF: dict[str, TurnOff] = {"planes": with_planes_swapped, "positions": with_positions_of_text}
DEEPSTACK_OFF: dict[str, TurnOff] = {
    **PLANES_OFF, "deepstack": before_layers(_without_deepstack),
    "order of deepstack": before_layers(_with_other_order),
}  # fmt: skip
SLIDING, FULL = "sliding_attention", "full_attention"


@dataclasses.dataclass(frozen=True)
class CellCase:
    family: FamilyCase
    off: dict[str, TurnOff]
    n_deepstack_layers: int = 0

    @property
    def prompt(self) -> CellPrompt:
        """The one with all images."""
        return self.prompt_of(len(GRIDS))

    def prompt_of(self, n_images: int) -> CellPrompt:
        return cell_prompt(n_images, SIZES["hidden_size"] * (1 + self.n_deepstack_layers))

    def peer(self) -> Any:
        peer = self.family.peer()
        peer.set_attn_implementation("eager")
        peer.config.image_token_id = PLACEHOLDER
        return peer


def with_deepstack(case: FamilyCase, n_layers: int) -> CellCase:
    keys = {**case.keys, "n_deepstack_layers": n_layers}
    vision = {**case.vision, "deepstack_visual_indexes": list(range(n_layers))}
    return CellCase(dataclasses.replace(case, keys=keys, vision=vision), DEEPSTACK_OFF, n_layers)


# By the names of the table of results, which has the weights of these models.
CELL_CASES: dict[str, CellCase] = {
    "qwen3_vl": with_deepstack(CASES["qwen3_vl"], 2),
    "qwen3_vl_moe": with_deepstack(CASES["qwen3_vl_moe"], 3),
    "qwen3_5_that_sees": CellCase(WRAPPED["qwen3_5"], PLANES_OFF),
    "gemma3_that_sees": CellCase(
        WRAPPED["gemma3"],
        {"cells see ahead": before_layers(_causal(SLIDING, FULL)), "in all layers": before_layers(_causal(FULL))},
    ),
    "gemma4_31b_that_sees": CellCase(
        WRAPPED["gemma4_31b"],
        {"cells see ahead": before_layers(_causal(SLIDING)), "in windows alone": before_layers(_ahead_in_all_layers)},
    ),
    "gemma4_that_sees": CellCase(
        WRAPPED["gemma4"], {"padding token": with_another_padding_token, "cells see none ahead": that_sees_ahead}
    ),
}
