// Command R and Command A: attention and feed-forward in parallel, LayerNorm without bias, a factor on the logits.
// Command R+ normalizes each head of q and k by LayerNorm. Cohere 2 has windows in three of four layers, and only those
// layers have RoPE.
#include <array>
#include <string>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

constexpr int kCohere2Period = 4;

void set_cohere(ModelConfig& config) {
  config.norm_kind = NormKind::layer;
  config.parallel_blocks = true;
}

void read_cohere_base_gguf(FactReader& facts) {
  read_gguf_decoder(facts, NormKind::layer);
  refuse_gguf_experts(facts);
  set_cohere(facts.config);
  read_gguf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  facts.find_number("logit_scale", "logit_scale", facts.config.logit_scale);
}

void read_cohere_base_hf(FactReader& facts, double default_theta) {
  read_hf_decoder(facts, {.epsilon = "layer_norm_eps"});
  set_cohere(facts.config);
  read_hf_rope(facts, RopeStyle::adjacent, default_theta);
  read_biases(facts);
  facts.config.logit_scale = 0.0625F;
  facts.find_number("logit_scale", "logit_scale", facts.config.logit_scale);
}

void read_command_r_gguf(FactReader& facts) {
  read_cohere_base_gguf(facts);
  const std::string q_norm = facts.names().weight(0, facts.names().q_norm);
  if (!facts.has_tensor(q_norm)) return;
  facts.config.qk_norm = QkNorm::layer;
  facts.note_tensor("qk_norm", q_norm);
}

void read_cohere2_gguf(FactReader& facts) {
  read_cohere_base_gguf(facts);
  read_gguf_windows(facts, {.window = 4096, .period = kCohere2Period, .rope = 0});
  leave_rope_out(facts.config, windowed_layers(facts.config));
}

void read_cohere_hf(FactReader& facts) {
  read_cohere_base_hf(facts, 500000);
  bool has_qk_norm = false;
  facts.find_flag("qk_norm", "use_qk_norm", has_qk_norm);
  if (has_qk_norm) facts.config.qk_norm = QkNorm::layer;
}

void read_cohere2_hf(FactReader& facts) {
  read_cohere_base_hf(facts, 10000);
  read_hf_windows(facts, {.window = 4096, .period = kCohere2Period, .rope = 0});
  leave_rope_out(facts.config, windowed_layers(facts.config));
  require_integer(facts, "layer_switch", kCohere2Period);
  require_number(facts, "rotary_pct", 1);
}

}  // namespace

Family cohere_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "command-r", read_command_r_gguf, &kGgufNames},
      Architecture{ModelFormat::gguf, "cohere2", read_cohere2_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "cohere", read_cohere_hf, &kHfAdjacentNames},
      Architecture{ModelFormat::hf, "cohere2", read_cohere2_hf, &kHfAdjacentNames},
  };
  return kRows;
}

}  // namespace imp
