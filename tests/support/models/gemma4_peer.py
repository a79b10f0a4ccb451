"""The tower of Gemma 4 of `transformers`, and how to turn each of its facts off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from support.models.tiny_gemma4_tower import Gemma4Tower
from support.models.tiny_tower import Pixels, TurnOff

_TEXT = {
    "vocab_size": 53, "vocab_size_per_layer_input": 53, "hidden_size_per_layer_input": 8, "intermediate_size": 24,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 16,
    "max_position_embeddings": 64, "pad_token_id": 0, "layer_types": ["full_attention"],
}  # fmt: skip


def make(tower: Gemma4Tower) -> Any:
    import transformers

    config = transformers.Gemma4Config(
        text_config=_TEXT | {"hidden_size": tower.slice_width}, vision_config=tower.vision_config(), audio_config=None
    )
    return transformers.Gemma4ForConditionalGeneration(config)


def image_processor(tower: Gemma4Tower) -> Any:
    import transformers

    return transformers.Gemma4ImageProcessorPil(patch_size=tower.patch_size, pooling_kernel_size=tower.reduction)


def encode(peer: Any, tower: Gemma4Tower, pixels: Pixels) -> Any:
    read = image_processor(tower)(pixels, do_resize=False, return_tensors="pt", input_data_format="channels_last")
    assert [int(n) for n in read["num_soft_tokens_per_image"]] == [tower.n_cells]
    found = peer.model.get_image_features(read["pixel_values"].float(), read["image_position_ids"])
    return found.pooler_output[0]


def _layers(peer: Any) -> Iterator[Any]:
    yield from peer.model.vision_tower.encoder.layers


def with_colours_first(peer: Any) -> None:
    """Patches as [colour, row, column]."""
    weight = peer.model.vision_tower.patch_embedder.input_proj.weight
    weight.data = weight.data.reshape(len(weight), -1, 3).swapaxes(1, 2).reshape(weight.shape).contiguous()


def with_colours_from_0(peer: Any) -> None:
    """Not from -1 to 1."""
    embedder = peer.model.vision_tower.patch_embedder
    whole = embedder.forward
    embedder.forward = lambda pixels, *others: whole(pixels / 2 + 0.5, *others)


def with_tables_exchanged(peer: Any) -> None:
    """That of rows for columns."""
    table = peer.model.vision_tower.patch_embedder.position_embedding_table
    table.data = table.data.flip(0).contiguous()


def with_axes_exchanged(peer: Any) -> None:
    """The first half of a head by the row."""
    rotary = peer.model.vision_tower.encoder.rotary_emb
    whole = rotary.forward
    rotary.forward = lambda x, position_ids: whole(x, position_ids.flip(-1))


def with_pairs_of_whole_heads(peer: Any) -> None:
    """Pairs half a head apart."""
    import torch

    rotary = peer.model.vision_tower.encoder.rotary_emb
    whole = rotary.forward

    def angles(x: Any, position_ids: Any) -> Any:
        quarters = [torch.chunk(each, 4, dim=-1) for each in whole(x, position_ids)]
        return tuple(torch.cat([q[0], q[2], q[1], q[3]], dim=-1) for q in quarters)

    rotary.forward = angles


def with_theta_of_10000(peer: Any) -> None:
    rotary = peer.model.vision_tower.encoder.rotary_emb
    rotary.inv_freq.data = rotary.inv_freq.data**2


def with_scaled_scores(peer: Any) -> None:
    for layer in _layers(peer):
        layer.self_attn.scaling = layer.self_attn.head_dim**-0.5


def with_values_as_they_are(peer: Any) -> None:
    import torch

    for layer in _layers(peer):
        layer.self_attn.v_norm = torch.nn.Identity()


def with_erf(peer: Any) -> None:
    import torch

    for layer in _layers(peer):
        layer.mlp.act_fn = torch.nn.GELU()


def _move(peer: Any, bounds: tuple[str, ...]) -> None:
    products = [module for module in peer.model.vision_tower.modules() if hasattr(module, bounds[0])]
    assert products
    for product in products:
        for bound in bounds:
            getattr(product, bound).data.mul_(1e9)


def without_bounds_of_inputs(peer: Any) -> None:
    _move(peer, ("input_min", "input_max"))


def without_bounds_of_outputs(peer: Any) -> None:
    _move(peer, ("output_min", "output_max"))


def with_bounds_of_one_product(peer: Any) -> None:
    """The bounds of keys for queries."""
    for layer in _layers(peer):
        for bound in ("input_min", "input_max"):
            getattr(layer.self_attn.q_proj, bound).data.copy_(getattr(layer.self_attn.k_proj, bound))


def with_first_of_square(peer: Any) -> None:
    """Not the mean of a square of patches."""
    import torch

    pooler = peer.model.vision_tower.pooler
    whole = pooler._avg_pool_by_positions

    def pooled(x: Any, position_ids: Any, length: int) -> Any:
        is_first = (position_ids % 3 == 0).all(dim=-1, keepdim=True)
        return whole(torch.where(is_first, 9 * x, 0.0), position_ids, length)

    pooler._avg_pool_by_positions = pooled


def without_root(peer: Any) -> None:
    """The mean without its factor, which the standardization sees."""
    peer.model.vision_tower.pooler.root_hidden_size = 1


def with_mean_of_0(peer: Any) -> None:
    peer.model.vision_tower.std_bias.data.zero_()


def with_factors_of_1(peer: Any) -> None:
    peer.model.vision_tower.std_scale.data.fill_(1)


OFF: dict[str, TurnOff] = {
    "order of a patch": with_colours_first,
    "range of colours": with_colours_from_0,
    "tables of positions": with_tables_exchanged,
    "axes of rotation": with_axes_exchanged,
    "halves of heads": with_pairs_of_whole_heads,
    "theta": with_theta_of_10000,
    "scores as they are": with_scaled_scores,
    "norm of values": with_values_as_they_are,
    "tanh in gelu": with_erf,
    "bounds of inputs": without_bounds_of_inputs,
    "bounds of outputs": without_bounds_of_outputs,
    "bounds of each product": with_bounds_of_one_product,
    "mean of a square": with_first_of_square,
    "root of the width": without_root,
    "mean of cells": with_mean_of_0,
    "factors of cells": with_factors_of_1,
}
