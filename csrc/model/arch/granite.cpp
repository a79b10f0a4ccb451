// Granite 3 and 4: Llama with factors on the embedding, on what each block adds, on the scores and on the logits. With
// or without experts, one of which may be shared.
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/hf_facts.h"
#include "model/model_limits.h"

namespace imp {
namespace {

// The keys of the factors. The last one divides the logits.
struct FactorKeys {
  std::string_view embedding, residual, attention, logits;
};
constexpr FactorKeys kGgufFactors = {"embedding_scale", "residual_scale", "attention.scale", "logit_scale"};
constexpr FactorKeys kHfFactors = {"embedding_multiplier", "residual_multiplier", "attention_multiplier",
                                   "logits_scaling"};

void read_factors(FactReader& facts, const FactorKeys& keys) {
  ModelConfig& config = facts.config;
  facts.find_number("embedding_scale", keys.embedding, config.embedding_scale);
  facts.find_number("residual_scale", keys.residual, config.residual_scale);
  facts.find_number("attention_scale", keys.attention, config.attention_scale);
  float divisor = 1;
  if (facts.find_number("logit_scale", keys.logits, divisor)) config.logit_scale = 1 / divisor;
}

// The shared expert has no gate.
void read_shared_expert(FactReader& facts, std::string_view key) {
  if (facts.find_integer(key).value_or(0) == 0) return;
  facts.count("shared_ffn_size", key, model_limits::kFfn, facts.config.shared_ffn_size);
  facts.config.shared_is_gated = false;
}

void read_granite_base_gguf(FactReader& facts) {
  read_gguf_decoder(facts);
  // GGUF permutes the rows of q and k of this architecture, so that rotated pairs are adjacent.
  read_gguf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  read_factors(facts, kGgufFactors);
}

}  // namespace

void read_granite_gguf(FactReader& facts) {
  read_granite_base_gguf(facts);
  refuse_gguf_experts(facts);
}

void read_granite_moe_gguf(FactReader& facts) {
  read_granite_base_gguf(facts);
  read_gguf_experts(facts, true);
  read_shared_expert(facts, "expert_shared_feed_forward_length");
}

void read_granite_hf(FactReader& facts) {
  read_hf_decoder(facts);
  read_hf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  facts.config.attention_scale = 1;
  read_factors(facts, kHfFactors);
}

void read_granite_moe_hf(FactReader& facts) {
  read_granite_hf(facts);
  facts.config.experts.normalized = true;
  read_hf_experts(facts, "num_local_experts", "intermediate_size");
  read_shared_expert(facts, "shared_intermediate_size");
}

}  // namespace imp
