// GLM 4: norms before and after; half of each head is rotated, in adjacent pairs; gate and up in one tensor.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr TensorNames kHfGlm4Names = [] {
  TensorNames names = kHfNames;
  names.post_attention_norm = "post_self_attn_layernorm";
  names.post_ffn_norm = "post_mlp_layernorm";
  names.gate_up = "mlp.gate_up_proj";
  names.rope_halves_apart = false;
  return names;
}();

constexpr TensorNames kGgufGlm4Names = [] {
  TensorNames names = kGgufNames;
  names.gate_up = "ffn_up";
  return names;
}();

void read_glm4_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  facts.config.norm_placement = NormPlacement::pre_and_post;
}

void read_glm4_hf(FactReader& facts) {
  constexpr float kRotatedPart = 0.5F;
  read_hf_decoder(facts, {.head_dim = 128, .defaults = {.n_kv_heads = 2}});
  read_hf_rope(facts, RopeStyle::adjacent, 10000, kRotatedPart);
  read_biases(facts);
  facts.config.norm_placement = NormPlacement::pre_and_post;
}

}  // namespace

Family glm4_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "glm4", read_glm4_gguf, &kGgufGlm4Names},
      Architecture{ModelFormat::hf, "glm4", read_glm4_hf, &kHfGlm4Names},
  };
  return kRows;
}

}  // namespace imp
