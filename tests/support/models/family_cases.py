"""Families as `transformers` knows them: a tiny configuration, its GGUF keys, and how to turn each of its facts off."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import GgufContents
from support.files.hf_export import export
from support.files.hf_weights import fill, weights_of
from support.models.forward_runs import distance, load, logits, prompt
from support.models.tiny_models import TinyModel
from support.oracles.forward_bounds import float32_bound

SIZES = {
    "vocab_size": 53, "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "attn_implementation": "eager",
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 128}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
YARN_KEYS = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 128}

# Changes a model of transformers so that it no longer has a fact of its family.
TurnOff = Callable[[Any], None]


@dataclasses.dataclass(frozen=True)
class FamilyCase:
    model: str  # its classes are <model>ForCausalLM and <model>Config
    traits: dict[str, Any]  # what the configuration adds to SIZES
    architecture: str  # in GGUF
    keys: dict[str, Any]  # of GGUF other than the sizes, without the architecture
    off: dict[str, TurnOff]
    config_class: str = ""  # where it has another name
    vision: dict[str, Any] = dataclasses.field(
        default_factory=dict
    )  # the configuration of the vision tower, if the model has one
    gguf_rounds: bool = False  # GGUF holds a number in float32 that the configuration implies in float64

    def unfilled(self) -> Any:
        """Returns the model of transformers, with the parameters that the library draws."""
        import torch
        import transformers

        torch.set_num_threads(1)  # products this small take longer on several
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        config_class = getattr(transformers, self.config_class or f"{self.model}Config")
        traits = copy.deepcopy(SIZES | self.traits)
        if not self.vision:
            return getattr(transformers, f"{self.model}ForCausalLM")(config_class(**traits)).eval()
        del traits["attn_implementation"]
        tied = {"tie_word_embeddings": traits["tie_word_embeddings"]}
        config = config_class(text_config=traits, vision_config=copy.deepcopy(self.vision), **tied)
        return getattr(transformers, f"{self.model}ForConditionalGeneration")(config).eval()

    def peer(self) -> Any:
        """Returns the model of transformers, with other numbers in every parameter."""
        model = self.unfilled()
        fill(model)
        return model

    def exported(self, peer: Any) -> GgufContents:
        return export(weights_of(peer), self.architecture, self.keys)

    def written(self, peer: Any, path: Path) -> Path:
        return self.exported(peer).write(path)


def text_part(peer: Any) -> Any:
    """Returns the module that has the embedding and the layers."""
    found = [getattr(peer.model, name) for name in ("language_model", "text_model") if hasattr(peer.model, name)]
    return found[0] if found else peer.model


def peer_logits(peer: Any, tokens: list[int]) -> NDArray[np.float64]:
    import torch

    with torch.no_grad():
        logits: NDArray[np.float64] = peer(torch.tensor([tokens])).logits[0].double().numpy()
    return logits


def bound(peer: Any) -> float:
    return bound_of(peer.config.to_dict())


def bound_of(config: dict[str, Any]) -> float:
    """Both sides compute in float32, and the peer's angles are rounded to it too."""
    text = config.get("text_config", config)
    is_linear = "linear_attention" in (text.get("layer_types") or ())
    sizes = {"n_layers": text["num_hidden_layers"], "hidden_size": 40, "ffn_size": 72, "n_heads": 4, "head_dim": 16}
    return 2 * float32_bound(TinyModel("qwen35" if is_linear else "llama", **sizes))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Logits of 100 positions: errors relative to their root mean square."""

    from_gguf: float
    from_directory: float
    same_bits: bool  # of both formats
    bound: float
    controls: dict[str, float]  # the error once the peer no longer has a fact
    warnings: list[str]

    @property
    def uncaught(self) -> list[str]:
        return [fact for fact, error in self.controls.items() if error <= 4 * self.bound]

    @property
    def is_equal(self) -> bool:
        return max(self.from_gguf, self.from_directory) < self.bound


def compare(case: FamilyCase, folder: Path) -> Comparison:
    """imp against transformers, from a GGUF file and from what transformers saves."""
    peer, tokens = case.peer(), prompt(100, SIZES["vocab_size"])
    expected = peer_logits(peer, tokens)
    peer.save_pretrained(folder / "saved")
    models = [load(path, folder, kv_dtype="f32") for path in (case.written(peer, folder / "m.gguf"), folder / "saved")]
    gguf, saved = (logits(model, tokens) for model in models)
    controls = {}
    for fact, turn_off in case.off.items():
        changed = case.peer()
        turn_off(changed)
        controls[fact] = distance(gguf, peer_logits(changed, tokens))
    return Comparison(
        distance(gguf, expected), distance(saved, expected), np.array_equal(gguf, saved), bound(peer), controls,
        [*models[0].warnings, *models[1].warnings],
    )  # fmt: skip


def without(*path: str) -> TurnOff:
    """Leaves a module of each layer out."""

    def turn_off(peer: Any) -> None:
        import torch

        for layer in text_part(peer).layers:
            owner = layer
            for name in path[:-1]:
                owner = getattr(owner, name)
            setattr(owner, path[-1], torch.nn.Identity())

    return turn_off


def in_layers(value: Any, *path: str) -> TurnOff:
    """Sets an attribute of each layer."""

    def turn_off(peer: Any) -> None:
        for layer in peer.model.layers:
            owner = layer
            for name in path[:-1]:
                owner = getattr(owner, name)
            setattr(owner, path[-1], value)

    return turn_off


def configured(**changes: Any) -> TurnOff:
    """Sets fields of the configuration that the forward pass reads."""

    def turn_off(peer: Any) -> None:
        for name, value in changes.items():
            setattr(peer.config, name, value)

    return turn_off


def without_bias(*path: str) -> TurnOff:
    def turn_off(peer: Any) -> None:
        for layer in peer.model.layers:
            owner = layer
            for name in path:
                owner = getattr(owner, name)
            owner.bias = None

    return turn_off


def plain_frequencies(peer: Any) -> None:
    """A rope without its scaling."""
    import torch

    rope, dims = peer.model.rotary_emb, SIZES["head_dim"]
    theta = peer.config.rope_parameters["rope_theta"]
    rope.inv_freq = theta ** (-torch.arange(0, dims, 2) / dims)
    rope.attention_scaling = 1.0


def other_number_of_experts(peer: Any) -> None:
    for layer in text_part(peer).layers:
        layer.mlp.gate.top_k += 1


def without_embedding_scale(peer: Any) -> None:
    peer.model.embed_tokens.embed_scale.fill_(1.0)


def same_for_all_positions(peer: Any) -> None:
    peer.config.rope_parameters = {**peer.config.rope_parameters, "llama_4_scaling_beta": 0.0}


def all_rotated(peer: Any) -> None:
    """Every layer with rope, whatever its window."""
    for layer in peer.model.layers:
        layer.self_attn.sliding_window = None if hasattr(layer.self_attn, "is_sliding") else 500


def of_other_pairs(peer: Any) -> None:
    """The short divisors where the long ones hold, or the other way round."""
    before = peer.config.rope_parameters
    swapped = {"short_factor": before["long_factor"], "long_factor": before["short_factor"]}
    peer.config.rope_parameters = {**before, **swapped}
    rope = peer.model.rotary_emb
    fresh = type(rope)(peer.config)
    rope.inv_freq, rope.original_inv_freq = fresh.inv_freq, fresh.original_inv_freq


def without_shared_expert(peer: Any) -> None:
    import torch

    with torch.no_grad():
        for layer in peer.model.layers:
            layer.shared_mlp.output_linear.weight.zero_()


def with_plain_mean(peer: Any) -> None:
    """An RMS norm instead of LayerNorm: the mean is not subtracted."""
    import torch

    class RmsNorm(torch.nn.Module):
        def __init__(self, norm: Any) -> None:
            super().__init__()
            self.weight = norm.weight

        def forward(self, x: Any) -> Any:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

    peer.model.norm = RmsNorm(peer.model.norm)


def with_root_mean_square(name: str) -> TurnOff:
    """The norms of each head do not subtract the mean."""

    def turn_off(peer: Any) -> None:
        import torch

        class RmsNorm(torch.nn.Module):
            def __init__(self, weight: Any) -> None:
                super().__init__()
                self.weight = weight

            def forward(self, x: Any) -> Any:
                return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

        for layer in peer.model.layers:
            setattr(layer.self_attn, name, RmsNorm(getattr(layer.self_attn, name).weight))

    return turn_off


def with_norms_of_next_heads(peer: Any) -> None:
    for layer in peer.model.layers:
        weight = layer.self_attn.q_norm.weight
        weight.data = weight.data.roll(1, 0)


def with_activation(activation: Callable[[Any], Any]) -> TurnOff:
    def turn_off(peer: Any) -> None:
        for layer in peer.model.layers:
            setattr(layer.mlp, "act" if hasattr(layer.mlp, "act") else "act_fn", activation)

    return turn_off


def with_silu(peer: Any) -> None:
    import torch

    with_activation(torch.nn.SiLU())(peer)


def in_sequence(peer: Any) -> None:
    """The feed-forward reads what attention has added."""

    class Sum:
        def __init__(self, layer: Any) -> None:
            self.layer = layer

        def __call__(self, hidden_states: Any, **others: Any) -> Any:
            attended, _ = self.layer.self_attn(hidden_states=self.layer.input_layernorm(hidden_states), **others)
            hidden_states = hidden_states + attended
            return hidden_states + self.layer.mlp(self.layer.input_layernorm(hidden_states))

    for layer in peer.model.layers:
        layer.forward = Sum(layer)


def without_value_norm(peer: Any) -> None:
    import torch

    for layer in peer.model.layers:
        if hasattr(layer.self_attn, "v_norm"):
            layer.self_attn.v_norm = torch.nn.Identity()


def with_other_frequencies(kind: str, theta: float, turned: float = 1.0) -> TurnOff:
    """Replaces the rotary frequencies of the layers of one kind."""

    def turn_off(peer: Any) -> None:
        import torch

        frequencies = getattr(peer.model.rotary_emb, f"{kind}_inv_freq")
        n_pairs = len(frequencies)
        plain = theta ** (-torch.arange(n_pairs) / n_pairs)
        frequencies.copy_(torch.where(torch.arange(n_pairs) < turned * n_pairs, plain, 0.0))

    return turn_off


def in_experts(change: Callable[[Any], None]) -> TurnOff:
    def turn_off(peer: Any) -> None:
        import torch

        with torch.no_grad():
            for layer in peer.model.layers:
                change(layer.mlp.experts)

    return turn_off


def without_scalars(peer: Any) -> None:
    for layer in peer.model.layers:
        layer.layer_scalar.fill_(1.0)


def of_earlier_layers(peer: Any) -> None:
    """The first layer of each kind gives its keys and values to those that share, instead of the last one."""
    seen = set()
    for layer in peer.model.layers:
        layer.self_attn.store_full_length_kv = layer.self_attn.layer_type not in seen
        seen.add(layer.self_attn.layer_type)


def without_layer_table(peer: Any) -> None:
    peer.model.embed_tokens_per_layer.embed_scale.fill_(0.0)


def with_equal_experts(peer: Any) -> None:
    for layer in peer.model.layers:
        layer.router.per_expert_scale.data.fill_(1.0)


def with_unscaled_router(peer: Any) -> None:
    for layer in peer.model.layers:
        layer.router.scale.data.fill_(1.0)


def with_swapped_norms(peer: Any) -> None:
    for layer in peer.model.layers:
        first, second = layer.post_feedforward_layernorm_1, layer.post_feedforward_layernorm_2
        layer.post_feedforward_layernorm_1, layer.post_feedforward_layernorm_2 = second, first


def with_sinks(change: Callable[[Any], Any]) -> TurnOff:
    def turn_off(peer: Any) -> None:
        import torch

        with torch.no_grad():
            for layer in peer.model.layers:
                layer.self_attn.sinks.copy_(change(layer.self_attn.sinks))

    return turn_off


def rounded_ramp(peer: Any) -> None:
    """YaRN between whole pairs."""
    peer.config.rope_parameters = {**peer.config.rope_parameters, "truncate": True}
    rope = peer.model.rotary_emb
    fresh = type(rope)(peer.config)
    rope.inv_freq, rope.original_inv_freq = fresh.inv_freq, fresh.original_inv_freq


GPT_OSS_OFF: dict[str, TurnOff] = {
    "sinks": with_sinks(lambda sinks: sinks - 100),
    "sinks of each head": with_sinks(lambda sinks: sinks.roll(1)),
    "limits": in_experts(lambda experts: setattr(experts, "limit", 100.0)),
    "slope": in_experts(lambda experts: setattr(experts, "alpha", 1.0)),
    "bias of gate and up": in_experts(lambda experts: experts.gate_up_proj_bias.zero_()),
    "gate and up in turn": in_experts(lambda experts: experts.gate_up_proj_bias.copy_(
        experts.gate_up_proj_bias.reshape(-1, 2, 72).swapaxes(1, 2).reshape(-1, 144))),
    "bias of each expert": in_experts(lambda experts: experts.down_proj_bias.copy_(experts.down_proj_bias.roll(1, 0))),
    "bias of the router": in_layers(None, "mlp", "router", "bias"),
    "bias of the output": without_bias("self_attn", "o_proj"),
}  # fmt: skip
Q_NORM: dict[str, TurnOff] = {"norm of q": without("self_attn", "q_norm")}
NO_WINDOWS: dict[str, TurnOff] = {"windows": configured(sliding_window=500)}
ROPE = {"rope_theta": 1e4}
ROPE_KEYS = {"rope.freq_base": 1e4}
# Where heads are as wide as the stream divided by their number.
WIDE = {"hidden_size": 64}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.0, 2.5, 7.0, 32.0],
            "original_max_position_embeddings": 64}  # fmt: skip
# sqrt(1 + ln(512 / 64) / ln(64))
LONGROPE_MAGNITUDE = 1.224744871391589
GRANITE = {"embedding_multiplier": 2.5, "residual_multiplier": 0.3, "attention_multiplier": 0.15, "logits_scaling": 4.0}
GRANITE_KEYS = {"embedding_scale": 2.5, "residual_scale": 0.3, "attention.scale": 0.15, "logit_scale": 4.0}
GRANITE_OFF: dict[str, TurnOff] = {
    "scale of scores": in_layers(0.25, "self_attn", "scaling"),
    "scale of residuals": in_layers(1.0, "residual_multiplier"),
    "scale of logits": configured(logits_scaling=1.0),
    "scale of the embedding": lambda peer: setattr(peer.model, "embedding_multiplier", 1.0),
}
# No layer is one of Mamba, so their sizes have no effect.
GRANITE_4 = {
    "layer_types": ["full_attention"] * 3, "num_local_experts": 0, "num_experts_per_tok": 0,
    "shared_intermediate_size": 72, "mamba_n_heads": 8, "mamba_d_state": 16,
}  # fmt: skip
GRANITE_4_KEYS = {
    "attention.head_count_kv": [2, 2, 2], "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 1,
    "ssm.inner_size": 80, "ssm.time_step_rank": 8, "expert_count": 0, "expert_used_count": 0,
    "expert_shared_feed_forward_length": 72,
}  # fmt: skip
COHERE_OFF: dict[str, TurnOff] = {
    "mean of LayerNorm": with_plain_mean,
    "parallel halves": in_sequence,
    "scale of logits": lambda peer: setattr(peer, "logit_scale", 1.0),
}
MINISTRAL3_ROPE = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
    "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.1,
}  # fmt: skip

_S, _F = "sliding_attention", "full_attention"
GEMMA4 = {
    "tie_word_embeddings": True, "sliding_window": 20, "global_head_dim": 32, "final_logit_softcapping": 3.0,
    "hidden_size_per_layer_input": 0, "layer_types": [_S, _F, _S, _F],
    "rope_parameters": {_S: {"rope_type": "default", "rope_theta": 1e4},
                        _F: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6}},
}  # fmt: skip
GEMMA4_KEYS = {
    "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "rope.dimension_count": 32, "rope.dimension_count_swa": 16,
    "attention.sliding_window": 20, "attention.sliding_window_pattern": [True, False, True, False],
    "attention.key_length": 32, "attention.value_length": 32, "attention.key_length_swa": 16,
    "attention.value_length_swa": 16, "attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0,
    "final_logit_softcapping": 3.0,
}  # fmt: skip
GEMMA4_OFF: dict[str, TurnOff] = {
    **NO_WINDOWS, **Q_NORM, "norm of v": without_value_norm, "scalars of layers": without_scalars,
    "theta of windowed layers": with_other_frequencies(_S, 1e6),
    "theta of the others": with_other_frequencies(_F, 1e4, 0.25),
    "pairs that turn": with_other_frequencies(_F, 1e6, 0.5),
    "cap of logits": configured(final_logit_softcapping=None), "scale of the embedding": without_embedding_scale,
}  # fmt: skip

TOWER = {"hidden_size": 16, "num_hidden_layers": 1, "depth": 1, "num_heads": 2, "num_attention_heads": 2,
         "intermediate_size": 16, "out_hidden_size": 40, "image_size": 28, "patch_size": 14, "head_dim": 8,
         "deepstack_visual_indexes": []}  # fmt: skip
QWEN3_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "norm_topk_prob": True}
QWEN3_VL = {"rope_parameters": {"rope_type": "default", **ROPE, "mrope_section": [4, 2, 2]}}
QWEN3_VL_KEYS = {**ROPE_KEYS, "rope.dimension_sections": [4, 2, 2, 0], "n_deepstack_layers": 0}

CASES: dict[str, FamilyCase] = {
    "llama": FamilyCase(
        "Llama", {"rope_theta": 10000.0, "attention_bias": True, "mlp_bias": True},
        "llama", {"rope.freq_base": 10000.0}, {"bias of v": without_bias("self_attn", "v_proj")},
    ),
    "llama_3_1": FamilyCase(
        "Llama", {"rope_theta": 10000.0, "rope_scaling": LLAMA3, "tie_word_embeddings": True},
        "llama", {"rope.freq_base": 10000.0}, {"scaling of rope": plain_frequencies}, gguf_rounds=True,
    ),
    "mistral": FamilyCase(
        "Mistral", {"rope_theta": 10000.0, "sliding_window": 20},
        "llama", {"rope.freq_base": 10000.0, "attention.sliding_window": 20}, NO_WINDOWS,
    ),
    "qwen2_yarn": FamilyCase(
        "Qwen2", {"rope_theta": 1e6, "rope_scaling": YARN},
        "qwen2", {"rope.freq_base": 1e6, **YARN_KEYS}, {"scaling of rope": plain_frequencies},
    ),
    "qwen2_moe": FamilyCase(
        "Qwen2Moe",
        {"rope_theta": 1e6, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
         "shared_expert_intermediate_size": 48},
        "qwen2moe", {"rope.freq_base": 1e6, "expert_count": 6, "expert_used_count": 2,
                     "expert_feed_forward_length": 24, "expert_shared_feed_forward_length": 48},
        {"bias of v": without_bias("self_attn", "v_proj")},
    ),
    "qwen3": FamilyCase("Qwen3", {"rope_theta": 1e6}, "qwen3", {"rope.freq_base": 1e6}, Q_NORM),
    "qwen3_moe": FamilyCase(
        "Qwen3Moe",
        {"rope_theta": 1e6, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
         "norm_topk_prob": True},
        "qwen3moe", {"rope.freq_base": 1e6, "expert_count": 6, "expert_used_count": 3,
                     "expert_feed_forward_length": 24}, Q_NORM,
    ),
    "qwen3_moe_not_normalized": FamilyCase(
        "Qwen3Moe",
        {"rope_theta": 1e6, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
         "norm_topk_prob": False},
        "qwen3moe", {"rope.freq_base": 1e6, "expert_count": 6, "expert_used_count": 3,
                     "expert_feed_forward_length": 24, "expert_weights_norm": False},
        {"number of experts": other_number_of_experts},
    ),
    "qwen3_vl": FamilyCase("Qwen3VL", QWEN3_VL, "qwen3vl", QWEN3_VL_KEYS, Q_NORM, vision=TOWER),
    "qwen3_vl_moe": FamilyCase(
        "Qwen3VLMoe", {**QWEN3_VL, **QWEN3_EXPERTS},
        "qwen3vlmoe", {**QWEN3_VL_KEYS, "expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 24},
        {**Q_NORM, "number of experts": other_number_of_experts}, vision=TOWER,
    ),
    "mixtral": FamilyCase(
        "Mixtral",
        {"rope_theta": 10000.0, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 20},
        "llama", {"rope.freq_base": 10000.0, "attention.sliding_window": 20, "expert_count": 5,
                  "expert_used_count": 2}, NO_WINDOWS,
    ),
    "gemma2": FamilyCase(
        "Gemma2",
        {"rope_theta": 10000.0, "query_pre_attn_scalar": 16, "sliding_window": 20, "attn_logit_softcapping": 2.0,
         "final_logit_softcapping": 3.0, "tie_word_embeddings": True},
        "gemma2", {"rope.freq_base": 10000.0, "attention.sliding_window": 20, "attn_logit_softcapping": 2.0,
                   "final_logit_softcapping": 3.0},
        {**NO_WINDOWS, "cap of logits": configured(final_logit_softcapping=None),
         "cap of scores": in_layers(None, "self_attn", "attn_logit_softcapping"),
         "norm after attention": without("post_attention_layernorm")},
    ),
    "gemma3": FamilyCase(
        "Gemma3",
        {"rope_theta": 1e6, "rope_local_base_freq": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0},
         "query_pre_attn_scalar": 16, "sliding_window": 20, "num_hidden_layers": 7, "tie_word_embeddings": True},
        "gemma3", {"rope.freq_base": 1e6, "attention.sliding_window": 20, "rope.scaling.type": "linear",
                   "rope.scaling.factor": 8.0},
        {**NO_WINDOWS, **Q_NORM, "scale of the embedding": without_embedding_scale},
        config_class="Gemma3TextConfig",
    ),
    "gemma4_e2b": FamilyCase(
        "Gemma4",
        {**GEMMA4, "num_hidden_layers": 8, "layer_types": [_S, _F, _S, _F, _S, _S, _F, _F],
         "num_kv_shared_layers": 4, "hidden_size_per_layer_input": 24, "vocab_size_per_layer_input": 53,
         "use_double_wide_mlp": True},
        "gemma4", {**GEMMA4_KEYS, "attention.shared_kv_layers": 4, "embedding_length_per_layer_input": 24,
                   "attention.sliding_window_pattern": [True, False, True, False, True, True, False, False],
                   "feed_forward_length": [72] * 4 + [144] * 4},
        {**GEMMA4_OFF, "shared keys": of_earlier_layers, "table of layers": without_layer_table,
         "norm of the layer's embedding": without("post_per_layer_input_norm")},
        config_class="Gemma4TextConfig",
    ),
    "gemma4_31b": FamilyCase(
        "Gemma4", {**GEMMA4, "num_hidden_layers": 4, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
        "gemma4", {**GEMMA4_KEYS, "attention.head_count_kv": [2, 1, 2, 1]}, GEMMA4_OFF,
        config_class="Gemma4TextConfig",
    ),
    "gemma4_26b_a4b": FamilyCase(
        "Gemma4",
        {**GEMMA4, "num_hidden_layers": 4, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
         "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 24},
        "gemma4", {**GEMMA4_KEYS, "attention.head_count_kv": [2, 1, 2, 1], "expert_count": 6, "expert_used_count": 2,
                   "expert_feed_forward_length": 24},
        {**GEMMA4_OFF, "scales of experts": with_equal_experts, "scale of the router": with_unscaled_router,
         "norms of the branches": with_swapped_norms, "number of experts": configured(top_k_experts=3)},
        config_class="Gemma4TextConfig",
    ),
    "smollm3": FamilyCase(
        "SmolLM3", {"rope_theta": 1e4, "num_hidden_layers": 5, "pad_token_id": 0},
        "smollm3", {"rope.freq_base": 1e4}, {"layers without rope": in_layers(1, "self_attn", "use_rope")},
    ),
    "olmo2": FamilyCase(
        "Olmo2", {"rope_theta": 1e4}, "olmo2", {"rope.freq_base": 1e4},
        {**Q_NORM, "norm after attention": without("post_attention_layernorm"),
         "norm after the feed-forward": without("post_feedforward_layernorm")},
    ),
    "olmo3": FamilyCase(
        "Olmo3", {"rope_theta": 5e5, "rope_scaling": YARN, "sliding_window": 20, "num_hidden_layers": 5},
        "olmo2", {"rope.freq_base": 5e5, "attention.sliding_window": 20, **YARN_KEYS}, {**Q_NORM, **NO_WINDOWS},
    ),
    "granite": FamilyCase("Granite", {**ROPE, **GRANITE}, "granite", {**ROPE_KEYS, **GRANITE_KEYS}, GRANITE_OFF),
    "granite_4": FamilyCase(
        "GraniteMoeHybrid",
        {**ROPE, **GRANITE, **GRANITE_4, "position_embedding_type": "rope"}, "granite",
        {**ROPE_KEYS, **GRANITE_KEYS, **GRANITE_4_KEYS, "rope.scaling.finetuned": True},
        {**GRANITE_OFF, "rope": lambda peer: setattr(peer.model, "rotary_emb", None)},
    ),
    "granite_4_without_rope": FamilyCase(
        "GraniteMoeHybrid", {**GRANITE, **GRANITE_4}, "granite",
        {**GRANITE_KEYS, **GRANITE_4_KEYS, "rope.scaling.finetuned": False}, GRANITE_OFF,
    ),
    "granitemoe": FamilyCase(
        "GraniteMoe", {**ROPE, **GRANITE, "num_local_experts": 5, "num_experts_per_tok": 2},
        "granitemoe", {**ROPE_KEYS, **GRANITE_KEYS, "expert_count": 5, "expert_used_count": 2}, GRANITE_OFF,
    ),
    "granitemoeshared": FamilyCase(
        "GraniteMoeShared",
        {**ROPE, **GRANITE, "num_local_experts": 5, "num_experts_per_tok": 2, "shared_intermediate_size": 48},
        "granitemoe", {**ROPE_KEYS, **GRANITE_KEYS, "expert_count": 5, "expert_used_count": 2,
                       "expert_shared_feed_forward_length": 48},
        {"shared expert": without_shared_expert},
    ),
    "phi3": FamilyCase(
        "Phi3", {**ROPE, "hidden_size": 64, "sliding_window": 20, "pad_token_id": 0},
        "phi3", {**ROPE_KEYS, "attention.sliding_window": 20}, NO_WINDOWS,
    ),
    "phi4_mini": FamilyCase(
        "Phi3",
        {"rope_parameters": {**LONGROPE, **ROPE, "partial_rotary_factor": 0.5}, "hidden_size": 64, "pad_token_id": 0,
         "original_max_position_embeddings": 64, "tie_word_embeddings": True},
        "phi3", {**ROPE_KEYS, "rope.dimension_count": 8, "rope.scaling.original_context_length": 64,
                 "rope.scaling.attn_factor": LONGROPE_MAGNITUDE},
        {"long divisors": of_other_pairs},
    ),
    "ministral3": FamilyCase(
        "Ministral3", {"rope_parameters": MINISTRAL3_ROPE},
        "mistral3", {**ROPE_KEYS, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                     "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 0.5,
                     "attention.temperature_scale": 0.1},
        {"scale of queries": same_for_all_positions, "scaling of rope": plain_frequencies},
    ),
    "exaone4": FamilyCase(
        "Exaone4", {**ROPE, "sliding_window": 20, "num_hidden_layers": 5},
        "exaone4", {**ROPE_KEYS, "attention.sliding_window": 20},
        {**Q_NORM, "layers without rope": all_rotated, "norm after attention": without("post_attention_layernorm")},
    ),
    "exaone4_no_windows": FamilyCase(
        "Exaone4", {**ROPE, "sliding_window": None, "layer_types": ["full_attention"] * 3},
        "exaone4", ROPE_KEYS, Q_NORM,
    ),
    "seed_oss": FamilyCase(
        "SeedOss", {**ROPE, "attention_out_bias": True}, "seed_oss", ROPE_KEYS,
        {"bias of v": without_bias("self_attn", "v_proj"), "bias of the output": without_bias("self_attn", "o_proj")},
    ),
    "hunyuan": FamilyCase(
        "HunYuanDenseV1",
        {"rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, **ROPE},
         "tie_word_embeddings": True},
        "hunyuan-dense", {"rope.freq_base": 1e4 * 50.0 ** (16 / 14)},
        {"norm of q": without("self_attn", "query_layernorm"), "stretched rope": plain_frequencies},
        gguf_rounds=True,
    ),
    "glm4": FamilyCase(
        "Glm4", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5, **ROPE}, "pad_token_id": 0},
        "glm4", {**ROPE_KEYS, "rope.dimension_count": 8},
        {"norm after attention": without("post_self_attn_layernorm"), "bias of v": without_bias("self_attn", "v_proj"),
         "norm after the feed-forward": without("post_mlp_layernorm")},
    ),
    "ernie4_5": FamilyCase(
        "Ernie4_5", {**ROPE, "use_bias": True}, "ernie4_5", ROPE_KEYS,
        {"bias of v": without_bias("self_attn", "v_proj")},
    ),
    "gemma": FamilyCase(
        "Gemma", {**ROPE, "tie_word_embeddings": True}, "gemma", ROPE_KEYS,
        {"gelu": with_silu, "scale of the embedding": without_embedding_scale},
    ),
    "starcoder2": FamilyCase(
        "Starcoder2", {**ROPE, **WIDE, "sliding_window": 20, "tie_word_embeddings": True},
        "starcoder2", {**ROPE_KEYS, "attention.sliding_window": 20},
        {**NO_WINDOWS, "gelu": with_silu, "bias of norms": without_bias("input_layernorm"),
         "bias of the feed-forward": without_bias("mlp", "c_fc")},
    ),
    "cohere": FamilyCase(
        "Cohere", {**ROPE, **WIDE, "logit_scale": 0.4, "tie_word_embeddings": True},
        "command-r", {**ROPE_KEYS, "logit_scale": 0.4}, COHERE_OFF,
    ),
    "cohere_plus": FamilyCase(
        "Cohere", {**ROPE, **WIDE, "logit_scale": 0.4, "tie_word_embeddings": True, "use_qk_norm": True},
        "command-r", {**ROPE_KEYS, "logit_scale": 0.4},
        {**COHERE_OFF, **Q_NORM, "norm of k": without("self_attn", "k_norm"),
         "mean of q": with_root_mean_square("q_norm"), "norm of each head": with_norms_of_next_heads},
    ),
    "cohere2": FamilyCase(
        "Cohere2",
        {**ROPE, **WIDE, "logit_scale": 0.4, "tie_word_embeddings": True, "sliding_window": 20,
         "num_hidden_layers": 5},
        "cohere2", {**ROPE_KEYS, "logit_scale": 0.4, "attention.sliding_window": 20},
        {**COHERE_OFF, "layers without rope": in_layers(500, "self_attn", "sliding_window")},
    ),
    "arcee": FamilyCase("Arcee", {**ROPE}, "arcee", ROPE_KEYS, {"square of relu": with_silu}),
    "apertus": FamilyCase(
        "Apertus", {"rope_parameters": {**LLAMA3, **ROPE}}, "apertus", ROPE_KEYS, {**Q_NORM, "xielu": with_silu},
        gguf_rounds=True,
    ),
    "gpt_oss": FamilyCase(
        "GptOss",
        {"rope_theta": 1.5e5, "rope_scaling": {**YARN, "truncate": False}, "num_local_experts": 5,
         "num_experts_per_tok": 2, "sliding_window": 20},
        "gpt-oss", {"rope.freq_base": 1.5e5, **YARN_KEYS, "attention.sliding_window": 20, "expert_count": 5,
                    "expert_used_count": 2, "expert_feed_forward_length": 72},
        {**GPT_OSS_OFF, **NO_WINDOWS, "scaling of rope": plain_frequencies, "ramp of YaRN": rounded_ramp},
    ),
}  # fmt: skip
