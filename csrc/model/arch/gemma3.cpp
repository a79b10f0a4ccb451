// Gemma 3: q and k are normalized; of six layers five see a window, with rotary positions of their own.
#include <cmath>

#include "model/arch/architecture.h"
#include "model/arch/decoder_facts.h"

namespace imp {

void read_gemma3(FactReader& facts) {
  ModelConfig& config = facts.config;
  read_gemma(facts);
  config.qk_norm = true;
  read_rope(facts, RopeStyle::halves, 1000000);
  // Windowed layers turn faster and are never scaled.
  RopeConfig windowed = config.ropes[0];
  windowed.scaling = RopeScaling{};
  windowed.file_factors = false;
  windowed.theta = 10000;
  facts.find_number("windowed_rope_theta", "rope.freq_base_swa", windowed.theta);
  config.ropes.push_back(windowed);
  read_mixed_windows(facts, {.window = 1024, .period = 6, .rope = 1});
  facts.find_number("attention_soft_cap", "attn_logit_softcapping", config.attention_soft_cap);
  facts.find_number("logit_soft_cap", "final_logit_softcapping", config.logit_soft_cap);
  // The 27B model scales scores by its hidden size per head, and files do not say so; its depth tells it apart.
  constexpr int kLayersOf27B = 62;
  if (config.n_layers == kLayersOf27B && !facts.has("attention.scale")) {
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.hidden_size) / static_cast<float>(config.n_heads));
  }
}

}  // namespace imp
