// Qwen 3.5 and 3.6, and Qwen3-Next: the gated delta rule in most layers, attention with an output gate in the others.
// With or without experts, one of which is shared.
#include <array>
#include <string>

#include "base/printable.h"
#include "model/arch/architecture.h"
#include "model/arch/draft_heads.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

// Qwen 3.5 and Qwen3-Next, with linear attention.
constexpr LinearAttentionNames kGgufLinearNames = {
    .qkv = "attn_qkv",
    .gate = "attn_gate",
    .alpha = "ssm_alpha",
    .beta = "ssm_beta",
    .conv = "ssm_conv1d",
    .decay_rates = "ssm_a",
    .dt_bias = "ssm_dt.bias",
    .norm = "ssm_norm",
    .output = "ssm_out",
};

constexpr TensorNames kHfQwen3NextNames = [] {
  TensorNames names = kHfQwen35Names;
  names.linear.qkv_gate = "linear_attn.in_proj_qkvz";
  names.linear.alpha_beta = "linear_attn.in_proj_ba";
  return names;
}();

constexpr TensorNames kGgufQwen35Names = [] {
  TensorNames names = kGgufLateNormNames;
  names.linear = kGgufLinearNames;
  return names;
}();

constexpr TensorNames kGgufQwen3NextNames = [] {
  TensorNames names = kGgufQwen35Names;
  names.linear.alpha_beta = "ssm_ba";
  return names;
}();

// Of older files.
constexpr TensorNames kGgufFusedQwen3NextNames = [] {
  TensorNames names = kGgufQwen3NextNames;
  names.linear.qkv_gate = "ssm_in";
  names.marker = "blk.0.ssm_in.weight";
  return names;
}();

constexpr TensorNames kHfInnerQwen35Names = hf_names_of_inner_model(kHfQwen35Names);
constexpr TensorNames kHfInnerQwen35StackNames =
    hf_names_with_expert_stacks(kHfInnerQwen35Names, "model.language_model.layers.0.mlp.experts.gate_up_proj");
constexpr int kFullAttentionPeriod = 4;
constexpr ImageAxes kQwen35Axes = {11, 11, 10};

void set_family(ModelConfig& config) {
  config.qk_norm = QkNorm::head;
  config.output_gate = true;
}

// The file has one size for key and value heads, and the width of all value heads.
void read_gguf_delta(FactReader& facts, bool is_interleaved) {
  ModelConfig& config = facts.config;
  DeltaRule& rule = config.delta;
  facts.count("conv_taps", "ssm.conv_kernel", model_limits::kHeads, config.conv_taps);
  facts.count("delta_key_dim", "ssm.state_size", model_limits::kHeadDim, rule.key_dim);
  facts.count("delta_key_heads", "ssm.group_count", model_limits::kHeads, rule.n_key_heads);
  facts.count("delta_value_heads", "ssm.time_step_rank", model_limits::kHeads, rule.n_value_heads);
  int value_width = 0;
  facts.count("delta_value_dim", "ssm.inner_size", model_limits::kStateWidth, value_width);
  if (value_width % rule.n_value_heads != 0) {
    facts.refuse(Reason::MODEL_VALUE, "ssm.inner_size", std::to_string(value_width),
                 "a multiple of the " + std::to_string(rule.n_value_heads) + " value heads");
  }
  rule.value_dim = value_width / rule.n_value_heads;
  rule.is_interleaved = is_interleaved;
}

void read_gguf_kinds(FactReader& facts) {
  ModelConfig& config = facts.config;
  constexpr std::string_view kLinear = "attention.recurrent_layers";
  int period = kFullAttentionPeriod;
  facts.find_count("linear_layers", "full_attention_interval", model_limits::kLayers, period);
  auto linear = facts.find_flags("linear_layers", kLinear);
  if (linear && linear->size() != config.layers.size() + static_cast<std::size_t>(config.n_draft_layers)) {
    facts.refuse(Reason::MODEL_VALUE, kLinear, std::to_string(linear->size()) + " values",
                 "one for each of " + std::to_string(config.layers.size()) + " layers");
  }
  set_linear_layers(config, linear ? *linear : all_but_last_of(config, period));
}

void read_gguf_base(FactReader& facts, bool is_interleaved) {
  read_gguf_decoder(facts);
  read_gguf_nextn(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_gguf_delta(facts, is_interleaved);
  read_gguf_kinds(facts);
  set_family(facts.config);
}

void read_gguf_shared_expert(FactReader& facts) {
  read_gguf_experts(facts, true);
  facts.count("shared_ffn_size", "expert_shared_feed_forward_length", model_limits::kFfn, facts.config.shared_ffn_size);
}

void read_hf_delta(FactReader& facts) {
  ModelConfig& config = facts.config;
  DeltaRule& rule = config.delta;
  facts.count("conv_taps", "linear_conv_kernel_dim", model_limits::kHeads, config.conv_taps);
  facts.count("delta_key_dim", "linear_key_head_dim", model_limits::kHeadDim, rule.key_dim);
  facts.count("delta_value_dim", "linear_value_head_dim", model_limits::kHeadDim, rule.value_dim);
  facts.count("delta_key_heads", "linear_num_key_heads", model_limits::kHeads, rule.n_key_heads);
  facts.count("delta_value_heads", "linear_num_value_heads", model_limits::kHeads, rule.n_value_heads);
}

void read_hf_kinds(FactReader& facts) {
  ModelConfig& config = facts.config;
  int period = kFullAttentionPeriod;
  facts.find_count("linear_layers", "full_attention_interval", model_limits::kLayers, period);
  const StringArray* types = facts.find_words("linear_layers", "layer_types");
  if (!types) return set_linear_layers(config, all_but_last_of(config, period));
  if (types->size() != config.layers.size()) {
    facts.refuse(Reason::MODEL_CONFIG, "layer_types", std::to_string(types->size()) + " values",
                 "one for each of " + std::to_string(config.layers.size()) + " layers");
  }
  std::vector<bool> linear(types->size());
  for (std::size_t i = 0; i < linear.size(); ++i) {
    linear[i] = (*types)[i] == "linear_attention";
    if (!linear[i] && (*types)[i] != "full_attention") {
      facts.refuse(Reason::MODEL_UNSUPPORTED, "layer_types", printable((*types)[i]),
                   "full_attention or linear_attention");
    }
  }
  set_linear_layers(config, linear);
}

void read_hf_base(FactReader& facts, int default_kv_heads) {
  constexpr float kRotatedPart = 0.25F;
  read_hf_decoder(facts, {.head_dim = 256, .defaults = {.n_kv_heads = default_kv_heads}});
  read_hf_rope(facts, RopeStyle::halves, 10000, kRotatedPart);
  read_hf_delta(facts);
  read_hf_kinds(facts);
  require_flag(facts, "attn_output_gate", true);
  // Keys of the draft layers, and the type of the state, which is always float32 in imp.
  for (const char* key : {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"})
    facts.ignore(key);
  set_family(facts.config);
}

void read_hf_shared_expert(FactReader& facts) {
  facts.config.experts.normalized = true;
  read_hf_experts(facts, "num_experts", "moe_intermediate_size");
  facts.count("shared_ffn_size", "shared_expert_intermediate_size", model_limits::kFfn, facts.config.shared_ffn_size);
  facts.find_flag("expert_weights_normalized", "norm_topk_prob", facts.config.experts.normalized);
  read_hf_dense_layers(facts);
}

void read_qwen35_base_gguf(FactReader& facts) {
  read_gguf_base(facts, true);
  read_image_axes(facts, "rope.dimension_sections", kQwen35Axes);
}

void read_qwen35_gguf(FactReader& facts) {
  read_qwen35_base_gguf(facts);
  refuse_gguf_experts(facts);
}

void read_qwen35_moe_gguf(FactReader& facts) {
  read_qwen35_base_gguf(facts);
  read_gguf_shared_expert(facts);
}

void read_qwen3_next_gguf(FactReader& facts) {
  read_gguf_base(facts, false);
  read_gguf_shared_expert(facts);
}

void read_qwen3_5_hf(FactReader& facts) {
  read_hf_base(facts, 4);
  read_hf_image_axes(facts, kQwen35Axes);
  facts.ignore("mlp_only_layers");  // no layer has experts
}

void read_qwen3_5_moe_hf(FactReader& facts) {
  read_hf_base(facts, 2);
  read_hf_image_axes(facts, kQwen35Axes);
  read_hf_shared_expert(facts);
}

void read_qwen3_next_hf(FactReader& facts) {
  read_hf_base(facts, 2);
  read_hf_shared_expert(facts);
}

}  // namespace

Family qwen3_5_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "qwen35", read_qwen35_gguf, &kGgufQwen35Names},
      Architecture{ModelFormat::gguf, "qwen35moe", read_qwen35_moe_gguf, &kGgufQwen35Names},
      Architecture{
          ModelFormat::gguf, "qwen3next", read_qwen3_next_gguf, &kGgufQwen3NextNames, "", {&kGgufFusedQwen3NextNames}},
      Architecture{ModelFormat::hf, "qwen3_5_text", read_qwen3_5_hf, &kHfQwen35Names, "", {&kHfInnerQwen35Names}},
      Architecture{ModelFormat::hf,
                   "qwen3_5_moe_text",
                   read_qwen3_5_moe_hf,
                   &kHfQwen35Names,
                   "",
                   {&kHfQwen35StackNames, &kHfInnerQwen35StackNames, &kHfInnerQwen35Names}},
      Architecture{ModelFormat::hf, "qwen3_next", read_qwen3_next_hf, &kHfQwen3NextNames},
      Architecture{
          ModelFormat::hf, "qwen3_5", read_qwen3_5_hf, &kHfInnerQwen35Names, "text_config.", {&kHfQwen35Names}},
      Architecture{ModelFormat::hf,
                   "qwen3_5_moe",
                   read_qwen3_5_moe_hf,
                   &kHfInnerQwen35StackNames,
                   "text_config.",
                   {&kHfInnerQwen35StackNames, &kHfInnerQwen35Names}},
  };
  return kRows;
}

}  // namespace imp
