// gpt-oss: experts with biases and a gate with limits, windows in every other layer, and attention sinks.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"

namespace imp {
namespace {

// gpt-oss: tensors with all experts, whose names have no suffix.
constexpr TensorNames kHfGptOssNames = [] {
  TensorNames names = kHfNames;
  names.router = "mlp.router";
  names.experts = "";
  names.expert_gate_up = "mlp.experts.gate_up_proj";
  names.gate_up_in_turn = true;
  names.expert_down = "mlp.experts.down_proj";
  names.stack_suffix = "";
  names.stack_bias_suffix = "_bias";
  names.stack_form = StackForm::columns;
  return names;
}();

constexpr MixedWindows kWindows = {.window = 128, .period = 2, .rope = 0};

void set_gpt_oss(ModelConfig& config) {
  config.attention_sinks = true;
  config.expert_bias = true;
  config.clamped_silu = ClampedSilu{.limit = 7, .slope = 1.702F};
}

// The scaling of files without RoPE parameters, as transformers has it.
const RopeScaling kGptOssScaling = {.kind = RopeScalingKind::yarn,
                                    .factor = 32,
                                    .original_context = 4096,
                                    .truncated = false,
                                    .short_divisors = {},
                                    .long_divisors = {}};

void read_gpt_oss_rope(FactReader& facts) {
  const bool is_stated = has_hf_rope(facts);
  read_hf_rope(facts, RopeStyle::halves, 150000);
  if (!is_stated) facts.config.ropes.front().scaling = kGptOssScaling;
}

void read_gpt_oss_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_rope(facts, RopeStyle::halves, 150000);
  // The models were trained with an unrounded ramp, and GGUF has no key for it.
  facts.config.ropes.front().scaling.truncated = false;
  read_gguf_windows(facts, kWindows);
  read_gguf_experts(facts, true);
  read_biases(facts);
  set_gpt_oss(facts.config);
}

void read_gpt_oss_hf(FactReader& facts) {
  read_hf_decoder(facts, {.head_dim = 64, .defaults = {.n_kv_heads = 8}});
  read_gpt_oss_rope(facts);
  read_hf_windows(facts, kWindows);
  facts.config.experts.normalized = true;
  read_hf_experts(facts, "num_local_experts", "intermediate_size");
  read_biases(facts);
  set_gpt_oss(facts.config);
  facts.find_number("gate_limit", "swiglu_limit", facts.config.clamped_silu->limit);
  facts.find_number("gate_slope", "swiglu_alpha", facts.config.clamped_silu->slope);
  // Other names of num_experts_per_tok and of RoPE's original_max_position_embeddings.
  for (const char* key : {"experts_per_token", "initial_context_length"}) facts.ignore(key);
}

}  // namespace

Family gpt_oss_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "gpt-oss", read_gpt_oss_gguf, &kGgufLateNormNames},
      Architecture{ModelFormat::hf, "gpt_oss", read_gpt_oss_hf, &kHfGptOssNames},
  };
  return kRows;
}

}  // namespace imp
