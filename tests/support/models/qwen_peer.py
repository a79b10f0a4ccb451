"""The towers of Qwen 3 VL, 3.5 and 3.6 of `transformers`, and how to turn each of their facts off."""

from __future__ import annotations

from typing import Any

from support.models.tiny_qwen_tower import QwenTower
from support.models.tiny_tower import Pixels, TurnOff

_TEXT = {
    "vocab_size": 53, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0, "num_experts": 2,
    "num_experts_per_tok": 1, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
    "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
_ROPE = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 10000.0}
_CLASSES = {
    "qwen3_vl": "Qwen3VL", "qwen3_vl_moe": "Qwen3VLMoe", "qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe",
}  # fmt: skip


def make(tower: QwenTower) -> Any:
    import transformers

    name = _CLASSES[tower.model_type]
    text = _TEXT | {"hidden_size": tower.slice_width, "rope_parameters": _ROPE}
    config = getattr(transformers, f"{name}Config")(text_config=text, vision_config=tower.vision_config())
    return getattr(transformers, f"{name}ForConditionalGeneration")(config)


def image_processor(tower: QwenTower) -> Any:
    import transformers

    return transformers.Qwen2VLImageProcessorPil(
        image_mean=list(tower.mean), image_std=list(tower.deviation), patch_size=tower.patch_size,
        merge_size=tower.reduction, size={"shortest_edge": tower.min_pixels, "longest_edge": tower.max_pixels},
    )  # fmt: skip


def encode(peer: Any, tower: QwenTower, pixels: Pixels) -> Any:
    import torch

    read = image_processor(tower)(pixels, do_resize=False, return_tensors="pt", input_data_format="channels_last")
    assert read["image_grid_thw"].tolist() == [[1, *tower.patch_grid]]
    found = peer.model.get_image_features(read["pixel_values"].float(), read["image_grid_thw"])
    slices = [found.pooler_output, *(getattr(found, "deepstack_features", None) or [])]
    return torch.cat([of_images[0] for of_images in slices], dim=-1)


def with_rows_and_columns_exchanged(peer: Any) -> None:
    """The other plane of positions for each pair."""
    rotary = peer.model.visual.rotary_pos_emb
    whole = rotary.forward
    rotary.forward = lambda x, position_ids: whole(x, position_ids.flip(-1))


def without_rotation(peer: Any) -> None:
    peer.model.visual.rotary_pos_emb.inv_freq.data.zero_()


def with_one_run_of_frequencies(peer: Any) -> None:
    """Those of columns go on where those of rows end."""
    import torch

    rotary = peer.model.visual.rotary_pos_emb
    n_pairs = 2 * len(rotary.inv_freq)

    def angles(_x: Any, position_ids: Any) -> Any:
        by_pair = position_ids.repeat_interleave(n_pairs // 2, dim=-1).float()
        turned = by_pair * 10000.0 ** (-torch.arange(n_pairs) / n_pairs)
        both = torch.cat([turned, turned], dim=-1)
        return both.cos(), both.sin()

    rotary.forward = angles


def with_one_frame(peer: Any) -> None:
    """The first frame counts twice."""
    weight = peer.model.visual.patch_embed.proj.weight
    weight.data[:, :, 1] = weight.data[:, :, 0]


def with_corners_cut(peer: Any) -> None:
    """Ends of pixels lie on each other, not their middles."""
    peer.model.visual.interpolation_align_corners = False


def with_columns_first(peer: Any) -> None:
    """Positions by columns."""
    weight = peer.model.visual.pos_embed.weight
    side = round(len(weight) ** 0.5)
    weight.data = weight.data.reshape(side, side, -1).swapaxes(0, 1).reshape(weight.shape).contiguous()


def with_merge_by_columns(peer: Any) -> None:
    """The patches of a cell by columns."""
    weight = peer.model.visual.merger.linear_fc1.weight
    weight.data = weight.data.reshape(len(weight), 2, 2, -1).swapaxes(1, 2).reshape(weight.shape).contiguous()


def with_tanh(peer: Any) -> None:
    """In the activation of cells."""
    import torch

    visual = peer.model.visual
    for merger in [visual.merger, *getattr(visual, "deepstack_merger_list", [])]:
        merger.act_fn = torch.nn.GELU(approximate="tanh")


def with_erf(peer: Any) -> None:
    """In the activation of layers."""
    import torch

    for block in peer.model.visual.blocks:
        block.mlp.act_fn = torch.nn.GELU()


def with_norm_behind_merge(peer: Any) -> None:
    """The norm of the first slice sees a whole square."""
    import torch

    merger = peer.model.visual.merger
    of_patch = merger.norm
    wide = torch.nn.LayerNorm(4 * len(of_patch.weight), eps=of_patch.eps)
    wide.weight.data, wide.bias.data = of_patch.weight.data.repeat(4), of_patch.bias.data.repeat(4)
    merger.norm, merger.use_postshuffle_norm = wide, True


def with_norms_before_merge(peer: Any) -> None:
    """The norms of taps see each patch by itself."""
    import torch

    for merger in peer.model.visual.deepstack_merger_list:
        hidden = len(merger.norm.weight) // 4
        narrow = torch.nn.LayerNorm(hidden, eps=merger.norm.eps)
        narrow.weight.data, narrow.bias.data = merger.norm.weight.data[:hidden], merger.norm.bias.data[:hidden]
        merger.norm, merger.use_postshuffle_norm = narrow, False


def with_later_taps(peer: Any) -> None:
    """Each tap reads the layer behind its own."""
    visual = peer.model.visual
    visual.deepstack_visual_indexes = [layer + 1 for layer in visual.deepstack_visual_indexes]


def without_bias_of_values(peer: Any) -> None:
    for block in peer.model.visual.blocks:
        bias = block.attn.qkv.bias
        bias.data[2 * len(bias) // 3 :] = 0


OFF: dict[str, TurnOff] = {
    "planes of positions": with_rows_and_columns_exchanged,
    "rotation": without_rotation,
    "frequencies begin anew": with_one_run_of_frequencies,
    "two frames": with_one_frame,
    "corners of positions": with_corners_cut,
    "order of positions": with_columns_first,
    "order of a cell": with_merge_by_columns,
    "erf in cells": with_tanh,
    "tanh in layers": with_erf,
    "norm before the merge": with_norm_behind_merge,
    "norms of taps": with_norms_before_merge,
    "layers of taps": with_later_taps,
    "bias of values": without_bias_of_values,
}
