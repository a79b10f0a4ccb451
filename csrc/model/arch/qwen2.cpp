// Qwen 2 and 2.5: biases on q, k and v. With or without experts, one of which is shared.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/draft_heads.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

void read_qwen2_base_hf(FactReader& facts, int default_kv_heads) {
  read_hf_decoder(facts, {.defaults = {.n_kv_heads = default_kv_heads}});
  read_hf_rope(facts, RopeStyle::halves, 10000);
  facts.config.qkv_bias = true;
}

// Every other one of the first max_window_layers has a window.
void read_qwen2_moe_windows(FactReader& facts) {
  const std::uint64_t n_mixed = read_max_window_layers(facts);
  std::vector<bool> windowed(facts.config.layers.size());
  for (std::size_t i = 0; i < windowed.size(); ++i) windowed[i] = i % 2 == 0 && i < n_mixed;
  read_hf_optional_windows(facts, windowed, kHfWindow);
}

void read_qwen2_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_nextn(facts);
  refuse_gguf_experts(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  facts.config.qkv_bias = true;
}

void read_qwen2_moe_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  read_gguf_rope(facts, RopeStyle::halves, 10000);
  read_gguf_experts(facts, false);
  facts.count("shared_ffn_size", "expert_shared_feed_forward_length", model_limits::kFfn, facts.config.shared_ffn_size);
  facts.config.qkv_bias = true;
}

void read_qwen2_hf(FactReader& facts) {
  read_qwen2_base_hf(facts, 32);
  read_hf_windows_of_last(facts);
}

// MiMo: Qwen 2 with a draft head.
void read_mimo_hf(FactReader& facts) {
  read_qwen2_hf(facts);
  facts.config.n_draft_layers = facts.find_integer("num_nextn_predict_layers").value_or(0) > 0 ? 1 : 0;
  require_flag(facts, "use_mrope", false);
}

void read_qwen2_moe_hf(FactReader& facts) {
  read_qwen2_base_hf(facts, 16);
  read_qwen2_moe_windows(facts);
  facts.find_flag("qkv_bias", "qkv_bias", facts.config.qkv_bias);
  read_hf_experts(facts, "num_experts", "moe_intermediate_size");
  facts.count("shared_ffn_size", "shared_expert_intermediate_size", model_limits::kFfn, facts.config.shared_ffn_size);
  facts.find_flag("expert_weights_normalized", "norm_topk_prob", facts.config.experts.normalized);
  read_hf_dense_layers(facts);
}

}  // namespace

Family qwen2_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "qwen2", read_qwen2_gguf, &kGgufNames},
      Architecture{ModelFormat::gguf, "qwen2moe", read_qwen2_moe_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "qwen2", read_qwen2_hf, &kHfNames, "", {&kHfBareNames}},
      Architecture{ModelFormat::hf, "mimo", read_mimo_hf, &kHfNames},
      Architecture{ModelFormat::hf, "qwen2_moe", read_qwen2_moe_hf, &kHfNames},
  };
  return kRows;
}

}  // namespace imp
