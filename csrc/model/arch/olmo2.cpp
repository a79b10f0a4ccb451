// OLMo 2 and 3: norms after the block only; q and k are normalized over all heads together. OLMo 3 has windows in three
// of four layers, whose RoPE is not scaled.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr int kOlmo3Period = 4;

void set_olmo2(ModelConfig& config) {
  config.norm_placement = NormPlacement::post;
  config.qk_norm = QkNorm::width;
}

void add_unscaled_rope(ModelConfig& config) {
  RopeConfig rope = config.ropes.front();
  rope.scaling = {};
  config.ropes.push_back(rope);
}

void read_olmo_base_hf(FactReader& facts, double default_theta) {
  read_hf_decoder(facts);
  set_olmo2(facts.config);
  read_hf_rope(facts, RopeStyle::halves, default_theta);
  read_biases(facts);
}

void read_olmo2_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  set_olmo2(facts.config);
  read_gguf_rope(facts, RopeStyle::halves, 500000);
  if (!has_gguf_windows(facts)) return;
  add_unscaled_rope(facts.config);
  facts.find_number("windowed_rope_theta", "rope.freq_base_swa", facts.config.ropes[1].theta);
  read_gguf_windows(facts, {.window = 0, .period = kOlmo3Period, .rope = 1});
}

void read_olmo2_hf(FactReader& facts) {
  read_olmo_base_hf(facts, 10000);
}

void read_olmo3_hf(FactReader& facts) {
  read_olmo_base_hf(facts, 500000);
  add_unscaled_rope(facts.config);
  facts.find_number("windowed_rope_theta", "rope_parameters.sliding_attention.rope_theta", facts.config.ropes[1].theta);
  require_plain_rope(facts, "rope_parameters.sliding_attention.");
  read_hf_windows(facts, {.window = 4096, .period = kOlmo3Period, .rope = 1});
}

}  // namespace

Family olmo2_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "olmo2", read_olmo2_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "olmo2", read_olmo2_hf, &kHfPostNormNames},
      Architecture{ModelFormat::hf, "olmo3", read_olmo3_hf, &kHfPostNormNames},
  };
  return kRows;
}

}  // namespace imp
