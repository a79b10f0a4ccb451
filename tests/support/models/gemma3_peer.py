"""The tower of Gemma 3 of `transformers`, and how to turn each of its facts off."""

from __future__ import annotations

from typing import Any

from support.models.tiny_gemma3_tower import Gemma3Tower
from support.models.tiny_tower import Pixels, TurnOff

_TEXT = {
    "vocab_size": 53, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip


def make(tower: Gemma3Tower) -> Any:
    import transformers

    config = transformers.Gemma3Config(
        text_config=_TEXT | {"hidden_size": tower.width}, vision_config=tower.vision_config(),
        mm_tokens_per_image=tower.n_cells,
    )  # fmt: skip
    return transformers.Gemma3ForConditionalGeneration(config)


def image_processor(tower: Gemma3Tower) -> Any:
    import transformers

    return transformers.Gemma3ImageProcessorPil(
        image_mean=list(tower.mean), image_std=list(tower.deviation),
        size={"height": tower.tile_size, "width": tower.tile_size},
    )  # fmt: skip


def encode(peer: Any, tower: Gemma3Tower, pixels: Pixels) -> Any:
    read = image_processor(tower)(pixels, do_resize=False, return_tensors="pt", input_data_format="channels_last")
    return peer.model.get_image_features(read["pixel_values"].float()).pooler_output[0]


def with_colours_last(peer: Any) -> None:
    """Patches as [row, column, colour]."""
    weight = peer.model.vision_tower.embeddings.patch_embedding.weight
    weight.data = weight.data.permute(0, 2, 3, 1).reshape(weight.shape).contiguous()


def with_columns_first(peer: Any) -> None:
    """Positions by columns."""
    weight = peer.model.vision_tower.embeddings.position_embedding.weight
    side = round(len(weight) ** 0.5)
    weight.data = weight.data.reshape(side, side, -1).swapaxes(0, 1).reshape(weight.shape).contiguous()


def with_largest_of_square(peer: Any) -> None:
    """Not the mean of a square of patches."""
    import torch

    projector = peer.model.multi_modal_projector
    projector.avg_pool = torch.nn.MaxPool2d(projector.kernel_size, projector.kernel_size)


def with_small_norm(peer: Any) -> None:
    """The norm's weight as it is stored."""
    peer.model.multi_modal_projector.mm_soft_emb_norm.weight.data -= 1


def with_product_of_rows(peer: Any) -> None:
    """The numbers of the last product as [outputs, inputs]."""
    weight = peer.model.multi_modal_projector.mm_input_projection_weight
    weight.data = weight.data.T.reshape(weight.shape).contiguous()


def with_erf(peer: Any) -> None:
    import torch

    for layer in peer.model.vision_tower.encoder.layers:
        layer.mlp.activation_fn = torch.nn.GELU()


def without_last_norm(peer: Any) -> None:
    import torch

    class Copy(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.contiguous()

    peer.model.vision_tower.post_layernorm = Copy()


OFF: dict[str, TurnOff] = {
    "order of a patch": with_colours_last,
    "order of positions": with_columns_first,
    "mean of a square": with_largest_of_square,
    "norm's weight and one": with_small_norm,
    "order of the product": with_product_of_rows,
    "tanh in gelu": with_erf,
    "norm behind the layers": without_last_norm,
}
