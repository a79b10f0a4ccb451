"""The towers of SmolVLM and Idefics3 of `transformers`, and how to turn each of their facts off."""

from __future__ import annotations

from typing import Any

from support.models.tiny_idefics3_tower import Idefics3Tower
from support.models.tiny_tower import Pixels, TurnOff

_TEXT = {
    "model_type": "llama", "vocab_size": 53, "intermediate_size": 72, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
_CLASSES = {"smolvlm": "SmolVLM", "idefics3": "Idefics3"}


def make(tower: Idefics3Tower) -> Any:
    import transformers

    name = _CLASSES[tower.model_type]
    text = _TEXT | {"hidden_size": tower.width}
    config = getattr(transformers, f"{name}Config")(
        text_config=text, vision_config=tower.vision_config(), scale_factor=tower.reduction
    )
    return getattr(transformers, f"{name}ForConditionalGeneration")(config)


def image_processor(tower: Idefics3Tower) -> Any:
    import transformers

    return transformers.Idefics3ImageProcessorPil(
        image_mean=list(tower.mean), image_std=list(tower.deviation), size={"longest_edge": tower.longest_side},
        max_image_size={"longest_edge": tower.tile_size},
    )  # fmt: skip


def encode(peer: Any, tower: Idefics3Tower, pixels: Pixels) -> Any:
    import torch

    as_it_is = {"do_resize": False, "do_image_splitting": False, "do_pad": False}
    read = image_processor(tower)(pixels, **as_it_is, return_tensors="pt", input_data_format="channels_last")
    found = peer.model.get_image_features(read["pixel_values"].float(), None)
    return (found if torch.is_tensor(found) else found.pooler_output)[0]


def with_colours_last(peer: Any) -> None:
    """Patches as [row, column, colour]."""
    weight = peer.model.vision_model.embeddings.patch_embedding.weight
    weight.data = weight.data.permute(0, 2, 3, 1).reshape(weight.shape).contiguous()


def with_columns_first(peer: Any) -> None:
    """Positions by columns."""
    weight = peer.model.vision_model.embeddings.position_embedding.weight
    side = round(len(weight) ** 0.5)
    weight.data = weight.data.reshape(side, side, -1).swapaxes(0, 1).reshape(weight.shape).contiguous()


def with_shuffle_by_columns(peer: Any) -> None:
    """The patches of a cell by columns."""
    weight = peer.model.connector.modality_projection.proj.weight
    by = peer.config.scale_factor
    weight.data = weight.data.reshape(len(weight), by, by, -1).swapaxes(1, 2).reshape(weight.shape).contiguous()


def with_erf(peer: Any) -> None:
    import torch

    for layer in peer.model.vision_model.encoder.layers:
        layer.mlp.activation_fn = torch.nn.GELU()


def without_last_norm(peer: Any) -> None:
    import torch

    class Copy(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.contiguous()

    peer.model.vision_model.post_layernorm = Copy()


def without_bias_of_values(peer: Any) -> None:
    for layer in peer.model.vision_model.encoder.layers:
        layer.self_attn.v_proj.bias.data.zero_()


def seen_causally(peer: Any) -> None:
    """A patch sees those before it alone."""
    import torch

    for layer in peer.model.vision_model.encoder.layers:
        whole = layer.forward

        def forward(hidden_states: Any, _mask: Any, whole: Any = whole, **others: Any) -> Any:
            n = hidden_states.shape[1]
            mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
            return whole(hidden_states, mask, **others)

        layer.forward = forward


OFF: dict[str, TurnOff] = {
    "order of a patch": with_colours_last,
    "order of positions": with_columns_first,
    "order of a cell": with_shuffle_by_columns,
    "tanh in gelu": with_erf,
    "norm behind the layers": without_last_norm,
    "bias of values": without_bias_of_values,
    "patches see all": seen_causally,
}
