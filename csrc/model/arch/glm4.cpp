// GLM 4: norms before and after; half of each head is rotated, in adjacent pairs; gate and up in one tensor.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

namespace imp {

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

}  // namespace imp
