// The tensor names of GGUF files.
#pragma once

#include "model/arch/tensor_names.h"

namespace imp {

// GGUF uses the same names for all decoders.
inline constexpr TensorNames kGgufNames = {
    .embedding = "token_embd.weight",
    .final_norm = "output_norm.weight",
    .output_head = "output.weight",
    .rope_factors = "rope_freqs.weight",
    .short_rope_factors = "rope_factors_short.weight",
    .long_rope_factors = "rope_factors_long.weight",
    .layer_table = "per_layer_token_embd.weight",
    .layer_projection = "per_layer_model_proj.weight",
    .layer_projection_norm = "per_layer_proj_norm.weight",
    .layer = "blk.",
    .attention_norm = "attn_norm",
    .optional_qkv = "attn_qkv",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .q_norm = "attn_q_norm",
    .k_norm = "attn_k_norm",
    .sinks = "attn_sinks.weight",
    .output = "attn_output",
    .post_attention_norm = "post_attention_norm",
    .ffn_norm = "ffn_norm",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .down = "ffn_down",
    .post_ffn_norm = "post_ffw_norm",
    .embedding_gate = "inp_gate",
    .embedding_output = "proj",
    .post_embedding_norm = "post_norm",
    .output_scale = "layer_output_scale.weight",
    .router_norm = "ffn_gate_inp.scale",
    .expert_scales = "ffn_down_exps.scale",
    .post_dense_norm = "post_ffw_norm_1",
    .expert_norm = "pre_ffw_norm_2",
    .post_expert_norm = "post_ffw_norm_2",
    .router = "ffn_gate_inp",
    .optional_expert_gate_up = "ffn_gate_up_exps",
    .expert_gate = "ffn_gate_exps",
    .expert_up = "ffn_up_exps",
    .expert_down = "ffn_down_exps",
    .shared_router = "ffn_gate_inp_shexp",
    .shared_gate = "ffn_gate_shexp",
    .shared_up = "ffn_up_shexp",
    .shared_down = "ffn_down_shexp",
    .text = {.projections = "dense_", .of_projection = "", .first_projection = 2, .unused = {"cls.output.weight"}},
};

// Families whose norm before the feed-forward has the name `post_attention_norm` in GGUF.
inline constexpr TensorNames kGgufLateNormNames = [] {
  TensorNames names = kGgufNames;
  names.post_attention_norm = "";
  names.ffn_norm = "post_attention_norm";
  return names;
}();

}  // namespace imp
