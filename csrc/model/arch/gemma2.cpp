// Gemma 2: soft caps on scores and logits; sliding windows in every other layer.
#include <array>
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

void read_gemma2_gguf(FactReader& facts) {
  ModelConfig& config = facts.config;
  facts.config.activation = GatedActivation::gelu_tanh;
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  set_gemma(config);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_gguf_windows(facts, {.window = 4096, .period = 2, .rope = 0});
  config.attention_soft_cap = 50;
  facts.find_number("attention_soft_cap", "attn_logit_softcapping", config.attention_soft_cap);
  config.logit_soft_cap = 30;
  facts.find_number("logit_soft_cap", "final_logit_softcapping", config.logit_soft_cap);
  // The 27B model scales scores by hidden size per head. Files do not say so; only its depth identifies it.
  constexpr int kLayersOf27B = 46;
  if (config.n_layers == kLayersOf27B && !facts.has("attention.scale")) {
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.hidden_size) / static_cast<float>(config.n_heads));
  }
}

void read_gemma2_hf(FactReader& facts) {
  ModelConfig& config = facts.config;
  facts.config.activation = GatedActivation::gelu_tanh;
  read_hf_decoder(facts, {.head_dim = 256, .query_scalar = 256, .defaults = {.n_kv_heads = 4}});
  set_gemma(config);
  read_hf_rope(facts, RopeStyle::halves, 10000);
  read_hf_windows(facts, {.window = 4096, .period = 2, .rope = 0});
  config.attention_soft_cap = 50;
  read_hf_soft_cap(facts, "attention_soft_cap", "attn_logit_softcapping", config.attention_soft_cap);
  config.logit_soft_cap = 30;
  read_hf_soft_cap(facts, "logit_soft_cap", "final_logit_softcapping", config.logit_soft_cap);
}

}  // namespace

Family gemma2_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "gemma2", read_gemma2_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "gemma2", read_gemma2_hf, &kHfFourNormNames},
  };
  return kRows;
}

}  // namespace imp
