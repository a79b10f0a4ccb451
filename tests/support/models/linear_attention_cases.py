"""Families with linear attention, as tests/support/models/family_cases.py has the others."""

from __future__ import annotations

from typing import Any

from support.models.family_cases import Q_NORM, FamilyCase, TurnOff


def _changed(change: Any) -> TurnOff:
    """Changes the linear attention of each layer that has it."""

    def turn_off(peer: Any) -> None:
        import torch

        with torch.no_grad():
            for layer in peer.model.layers:
                if hasattr(layer, "linear_attn"):
                    change(layer.linear_attn)

    return turn_off


def _without_output_gate(peer: Any) -> None:
    """The gates are zero, so that all are one half."""
    import torch

    with torch.no_grad():
        for layer in peer.model.layers:
            if hasattr(layer, "self_attn"):
                q = layer.self_attn.q_proj.weight
                q.view(-1, 2, layer.self_attn.head_dim, q.shape[1])[:, 1] = 0


def _without_norm_of_q(peer: Any) -> None:
    import torch

    for layer in peer.model.layers:
        if hasattr(layer, "self_attn"):
            layer.self_attn.q_norm = torch.nn.Identity()


def _without_shared_expert(peer: Any) -> None:
    import torch

    with torch.no_grad():
        for layer in peer.model.layers:
            layer.mlp.shared_expert.down_proj.weight.zero_()


def _shared_expert_without_gate(peer: Any) -> None:
    import torch

    with torch.no_grad():
        for layer in peer.model.layers:
            layer.mlp.shared_expert_gate.weight.zero_()


_OFF: dict[str, TurnOff] = {
    **dict.fromkeys(Q_NORM, _without_norm_of_q),
    "output gate": _without_output_gate,
    "decay": _changed(lambda linear: linear.A_log.fill_(-30)),
    "bias of steps": _changed(lambda linear: linear.dt_bias.zero_()),
    "order of taps": _changed(lambda linear: linear.conv1d.weight.copy_(linear.conv1d.weight.flip(-1))),
    "norm of linear attention": _changed(lambda linear: linear.norm.weight.fill_(1)),
}
_EXPERTS_OFF = {
    **_OFF, "shared expert": _without_shared_expert, "gate of the shared expert": _shared_expert_without_gate,
}  # fmt: skip
# Three layers with linear attention, one with softmax attention, and one more.
_LAYERS = {"num_hidden_layers": 5}
_ROPE: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 48}  # fmt: skip
_EXPERT_KEYS = {"expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 24,
                "expert_shared_feed_forward_length": 48}  # fmt: skip


def _sizes(key_heads: int, value_heads: int, key_dim: int, value_dim: int, taps: int = 4) -> dict[str, int]:
    return {
        "linear_num_key_heads": key_heads, "linear_num_value_heads": value_heads, "linear_key_head_dim": key_dim,
        "linear_value_head_dim": value_dim, "linear_conv_kernel_dim": taps,
    }  # fmt: skip


def _keys(sizes: dict[str, int]) -> dict[str, Any]:
    heads = sizes["linear_num_value_heads"]
    return {
        "rope.freq_base": 1e4, "rope.dimension_count": 8, "ssm.conv_kernel": sizes["linear_conv_kernel_dim"],
        "ssm.state_size": sizes["linear_key_head_dim"], "ssm.group_count": sizes["linear_num_key_heads"],
        "ssm.time_step_rank": heads, "ssm.inner_size": heads * sizes["linear_value_head_dim"],
        "full_attention_interval": 4,
    }  # fmt: skip


_EQUAL, _GROUPED, _SHORT = _sizes(3, 3, 16, 16), _sizes(2, 6, 8, 12), _sizes(2, 4, 8, 20, 3)

LINEAR_CASES: dict[str, FamilyCase] = {
    "qwen3_5": FamilyCase(
        "Qwen3_5", {**_LAYERS, **_ROPE, **_EQUAL}, "qwen35",
        {**_keys(_EQUAL), "rope.dimension_sections": [4, 2, 2, 0]}, _OFF, config_class="Qwen3_5TextConfig",
    ),
    # GGUF has value heads in another order, so sums over them differ in their last bits.
    "qwen3_5_grouped": FamilyCase(
        "Qwen3_5", {**_LAYERS, **_ROPE, **_GROUPED, "tie_word_embeddings": True}, "qwen35", _keys(_GROUPED), _OFF,
        config_class="Qwen3_5TextConfig", gguf_rounds=True,
    ),
    "qwen3_5_moe": FamilyCase(
        "Qwen3_5Moe", {**_LAYERS, **_ROPE, **_EQUAL, **_EXPERTS}, "qwen35moe", {**_keys(_EQUAL), **_EXPERT_KEYS},
        _EXPERTS_OFF, config_class="Qwen3_5MoeTextConfig",
    ),
    "qwen3_next": FamilyCase(
        "Qwen3Next", {**_LAYERS, **_ROPE, **_SHORT, **_EXPERTS}, "qwen3next", {**_keys(_SHORT), **_EXPERT_KEYS},
        _EXPERTS_OFF,
    ),
}  # fmt: skip
