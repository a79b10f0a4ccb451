// Mistral: Llama with a sliding window. Mixtral has experts; Ministral 3 has queries that grow with the position, and
// YaRN.
#include <array>

#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/arch/llama.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

// Mixtral has its own names for experts.
constexpr TensorNames kHfMixtralNames = [] {
  TensorNames names = kHfNames;
  names.router = "block_sparse_moe.gate";
  names.experts = "block_sparse_moe.experts.";
  names.expert_gate = "w1";
  names.expert_up = "w3";
  names.expert_down = "w2";
  return names;
}();

void read_mistral_hf(FactReader& facts) {
  read_llama_base_hf(facts, {.defaults = {.n_kv_heads = 8}});
  constexpr int kMistralWindow = 4096;
  read_hf_window(facts, kMistralWindow);
}

void read_mixtral_hf(FactReader& facts) {
  read_hf_decoder(facts, {.defaults = {.n_kv_heads = 8}});
  read_hf_rope(facts, RopeStyle::adjacent, 1000000);
  read_hf_window(facts, 0);
  facts.config.experts.normalized = true;
  read_hf_experts(facts, "num_local_experts", "intermediate_size");
}

// The RoPE that transformers uses for files without RoPE parameters. It ignores rope_theta in them.
void set_ministral3_rope(FactReader& facts) {
  ModelConfig& config = facts.config;
  RopeConfig& rope = config.ropes.front();
  rope.theta = 1000000;
  rope.scaling = {.kind = RopeScalingKind::yarn,
                  .factor = 16,
                  .original_context = 16384,
                  .mscale_all_dim = 1,
                  .short_divisors = {},
                  .long_divisors = {}};
  config.query_scale.growth = 0.1F;
}

void read_mistral3_gguf(FactReader& facts) {
  ModelConfig& config = facts.config;
  read_llama_gguf(facts);
  RopeScaling& scaling = config.ropes.front().scaling;
  // mscale_all_dim by its name in GGUF.
  facts.find_number("rope_mscale_all_dim", "rope.scaling.yarn_log_multiplier", scaling.mscale_all_dim);
  facts.find_number("query_scale_growth", "attention.temperature_scale", config.query_scale.growth);
  config.query_scale.period = scaling.original_context;
  facts.find_count("query_scale_period", "attention.temperature_length", model_limits::kContext,
                   config.query_scale.period);
}

void read_ministral3_hf(FactReader& facts) {
  ModelConfig& config = facts.config;
  read_llama_base_hf(facts, {.head_dim = 128, .defaults = {.n_kv_heads = 8}});
  read_hf_window(facts, 0);
  for (const char* section : {"rope_parameters.", "rope_scaling."}) {
    facts.ignore(std::string(section) + "max_position_embeddings");  // the same as outside the section
    facts.find_number("query_scale_growth", std::string(section) + "llama_4_scaling_beta", config.query_scale.growth);
  }
  if (!has_hf_rope(facts)) set_ministral3_rope(facts);
  config.query_scale.period = config.ropes.front().scaling.original_context;
}

// The text part of Mistral Small 3 and Ministral 3.
void read_mistral3_hf(FactReader& facts) {
  const auto word = facts.find_word("text_model", "model_type");
  if (word && *word == "ministral3") return read_ministral3_hf(facts);
  require_word(facts, "model_type", "mistral");
  read_mistral_hf(facts);
}

}  // namespace

Family mistral_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "mistral3", read_mistral3_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "mistral", read_mistral_hf, &kHfNames, "", {&kHfBareNames}},
      Architecture{ModelFormat::hf, "ministral3", read_ministral3_hf, &kHfNames},
      Architecture{ModelFormat::hf, "mixtral", read_mixtral_hf, &kHfMixtralNames},
      Architecture{ModelFormat::hf, "mistral3", read_mistral3_hf, &kHfInnerNames, "text_config.", {&kHfOuterNames}},
  };
  return kRows;
}

}  // namespace imp
