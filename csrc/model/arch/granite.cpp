// Granite 3 and 4: Llama with factors on the embedding, on what each block adds, on the scores and on the logits. With
// or without experts, one of which may be shared.
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/printable.h"
#include "model/arch/architecture.h"
#include "model/arch/gguf_facts.h"
#include "model/arch/gguf_names.h"
#include "model/arch/hf_facts.h"
#include "model/arch/hf_names.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

// Granite's experts: one tensor for gate and up of all of them.
constexpr TensorNames kHfGraniteMoeNames = [] {
  TensorNames names = kHfNames;
  names.router = "block_sparse_moe.router.layer";
  names.experts = "";
  names.expert_gate_up = "block_sparse_moe.input_linear";
  names.expert_down = "block_sparse_moe.output_linear";
  names.shared_gate_up = "shared_mlp.input_linear";
  names.shared_down = "shared_mlp.output_linear";
  return names;
}();

// Granite 4 without experts: its feed-forward has the names of a shared expert.
constexpr TensorNames kHfGraniteHybridNames = [] {
  TensorNames names = kHfNames;
  names.gate_up = "shared_mlp.input_linear";
  names.down = "shared_mlp.output_linear";
  return names;
}();

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

void leave_all_rope_out(ModelConfig& config) {
  leave_rope_out(config, std::vector<bool>(config.layers.size(), false));
}

// The shared expert has no gate.
void read_shared_expert(FactReader& facts, std::string_view key) {
  if (facts.find_integer(key).value_or(0) == 0) return;
  facts.count("shared_ffn_size", key, model_limits::kFfn, facts.config.shared_ffn_size);
  facts.config.shared_is_gated = false;
}

// Granite 4 without experts: the file states the size of its feed-forward as that of a shared expert.
void read_ffn_size(FactReader& facts, std::string_view key) {
  ModelConfig& config = facts.config;
  facts.find_count("ffn_size", key, model_limits::kFfn, config.ffn_size);
  for (LayerConfig& layer : config.layers) layer.ffn_size = config.ffn_size;
}

// Granite 4 names the kind of each layer. Without the list, all are Mamba layers.
void require_attention(FactReader& facts) {
  constexpr std::string_view kTypes = "layer_types";
  const StringArray* types = facts.find_words("", kTypes);
  if (!types) facts.refuse(Reason::MODEL_UNSUPPORTED, kTypes, "none", "attention for every layer: imp has no Mamba");
  for (std::size_t i = 0; i < types->size(); ++i) {
    if ((*types)[i] == "attention" || (*types)[i] == "full_attention") continue;
    facts.refuse(Reason::MODEL_UNSUPPORTED, kTypes, printable((*types)[i]),
                 "attention for every layer: imp has no Mamba; Granite 3, and Granite 4 without Mamba, run");
  }
}

void read_granite_base_gguf(FactReader& facts) {
  // Granite 4 without Mamba layers states one number of heads for each layer.
  read_gguf_decoder(facts, NormKind::rms, GgufLayers::different);
  // GGUF permutes the rows of q and k of this architecture, so that rotated pairs are adjacent.
  read_gguf_rope(facts, RopeStyle::adjacent, 10000);
  read_biases(facts);
  read_factors(facts, kGgufFactors);
  bool is_rotated = true;  // the key says so in this architecture only
  facts.find_flag("layers_without_rope", "rope.scaling.finetuned", is_rotated);
  if (!is_rotated) leave_all_rope_out(facts.config);
}

void read_granite_gguf(FactReader& facts) {
  read_granite_base_gguf(facts);
  refuse_gguf_experts(facts);
  read_ffn_size(facts, "expert_shared_feed_forward_length");
  // Files of Granite 4 without Mamba layers state the sizes of these.
  for (const char* key : {"conv_kernel", "state_size", "group_count", "inner_size", "time_step_rank"})
    facts.ignore(std::string("ssm.") + key);
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

void read_granite_hybrid_hf(FactReader& facts) {
  require_attention(facts);
  require_integer(facts, "num_local_experts", 0);
  require_word(facts, "normalization_function", "rmsnorm");
  read_granite_hf(facts);
  read_ffn_size(facts, "shared_intermediate_size");
  if (facts.find_word("layers_without_rope", "position_embedding_type") != "rope") leave_all_rope_out(facts.config);
  // These concern experts and Mamba layers.
  for (const char* key :
       {"num_experts_per_tok", "output_router_logits", "router_aux_loss_coef", "mamba_n_heads", "mamba_n_groups",
        "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_chunk_size", "mamba_conv_bias",
        "mamba_proj_bias", "time_step_limit", "time_step_limit.0", "time_step_limit.1.__float__"})
    facts.ignore(key);
}

void read_granite_moe_hf(FactReader& facts) {
  read_granite_hf(facts);
  facts.config.experts.normalized = true;
  read_hf_experts(facts, "num_local_experts", "intermediate_size");
  read_shared_expert(facts, "shared_intermediate_size");
}

}  // namespace

Family granite_family() noexcept {
  static constexpr std::array kRows = {
      Architecture{ModelFormat::gguf, "granite", read_granite_gguf, &kGgufNames},
      Architecture{ModelFormat::gguf, "granitemoe", read_granite_moe_gguf, &kGgufNames},
      Architecture{ModelFormat::hf, "granite", read_granite_hf, &kHfNames},
      Architecture{ModelFormat::hf, "granitemoe", read_granite_moe_hf, &kHfGraniteMoeNames},
      Architecture{ModelFormat::hf, "granitemoeshared", read_granite_moe_hf, &kHfGraniteMoeNames},
      Architecture{ModelFormat::hf, "granitemoehybrid", read_granite_hybrid_hf, &kHfGraniteHybridNames},
  };
  return kRows;
}

}  // namespace imp
