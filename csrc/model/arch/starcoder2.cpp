// StarCoder 2: LayerNorm with biases, a feed-forward without a gate, and windows.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"

namespace imp {

void read_starcoder2_gguf(FactReader& facts) {
  read_gguf_decoder(facts, NormKind::layer);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_gguf_window(facts);
  read_biases(facts);
  facts.config.norm_bias = true;
  facts.config.plain_activation = PlainActivation::gelu_tanh;
}

void read_starcoder2_hf(FactReader& facts) {
  facts.config.plain_activation = PlainActivation::gelu_tanh;
  read_hf_decoder(facts, {.epsilon = "norm_epsilon", .has_gate = false, .defaults = {.n_kv_heads = 2}});
  read_hf_rope(facts, RopeStyle::halves, 10000);
  read_hf_window(facts, 0);
  read_biases(facts);
  require_word(facts, "norm_type", "layer_norm");
  facts.config.norm_kind = NormKind::layer;
  facts.config.norm_bias = true;
}

}  // namespace imp
