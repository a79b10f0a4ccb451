// StarCoder 2: LayerNorm with biases, a feed-forward without a gate, and windows.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr TensorNames kHfStarcoder2Names = [] {
  TensorNames names = kHfNames;
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  return names;
}();

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

}  // namespace

Family starcoder2_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "starcoder2", read_starcoder2_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "starcoder2", read_starcoder2_hf, &kHfStarcoder2Names},
  };
  return kRows;
}

}  // namespace imp
