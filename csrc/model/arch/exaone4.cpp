// EXAONE 4: norms after the block only; q and k are normalized. Models with windows have them in three of four layers,
// and only those layers have RoPE.
#include <algorithm>
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr int kExaone4Period = 4;

void set_exaone4(ModelConfig& config) {
  config.norm_placement = NormPlacement::post;
  config.qk_norm = QkNorm::head;
}

void rotate_windowed_layers_only(ModelConfig& config) {
  const std::vector<bool> windowed = windowed_layers(config);
  if (std::ranges::find(windowed, true) != windowed.end()) leave_rope_out(config, windowed);
}

void read_exaone4_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  refuse_gguf_experts(facts);
  set_exaone4(facts.config);
  read_gguf_rope(facts, RopeStyle::halves, 1000000);
  if (!has_gguf_windows(facts)) return;
  read_gguf_windows(facts, {.window = 0, .period = kExaone4Period, .rope = 0});
  rotate_windowed_layers_only(facts.config);
}

void read_exaone4_hf(FactReader& facts) {
  read_hf_decoder(facts, {.defaults = {.n_kv_heads = 32}});
  set_exaone4(facts.config);
  read_hf_rope(facts, RopeStyle::halves, 10000);
  if (facts.is_null("sliding_window")) {
    for (const char* key : {"layer_types", "sliding_window_pattern"}) facts.ignore(key);  // no effect
    return;
  }
  read_hf_windows(facts, {.window = 4096, .period = kExaone4Period, .rope = 0});
  leave_rope_out(facts.config, windowed_layers(facts.config));
}

}  // namespace

Family exaone4_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "exaone4", read_exaone4_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "exaone4", read_exaone4_hf, &kHfPostNormNames},
  };
  return kRows;
}

}  // namespace imp
