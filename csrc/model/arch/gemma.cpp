// Gemma: a scaled embedding and gelu.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr TensorNames kHfGemmaNames = [] {
  TensorNames names = kHfNames;
  names.norm_offset = 1;
  return names;
}();

void set_first_gemma(ModelConfig& config) {
  set_gemma(config);
  config.norm_placement = NormPlacement::pre;
}

void read_gemma_gguf(FactReader& facts) {
  facts.config.activation = GatedActivation::gelu_tanh;
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  set_first_gemma(facts.config);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
}

void read_gemma_hf(FactReader& facts) {
  // Early files say "gelu" and mean its approximation by tanh.
  facts.config.activation = GatedActivation::gelu_tanh;
  read_hf_decoder(facts, {.head_dim = 256, .gelu_is_tanh = true, .defaults = {.n_kv_heads = 16}});
  set_first_gemma(facts.config);
  read_hf_rope(facts, RopeStyle::halves, 10000);
  require_flag(facts, "use_bidirectional_attention", false);
}

}  // namespace

Family gemma_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "gemma", read_gemma_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "gemma", read_gemma_hf, &kHfGemmaNames},
  };
  return kRows;
}

}  // namespace imp
