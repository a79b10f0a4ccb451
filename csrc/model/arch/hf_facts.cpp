// Reads the keys that config.json files share.
#include "model/arch/hf_facts.h"

#include <array>
#include <cmath>

#include "base/printable.h"
#include "files/float8_scheme.h"
#include "model/model_limits.h"
#include "model/rope.h"

namespace imp {
namespace {

void read_heads(FactReader& facts, int default_head_dim) {
  ModelConfig& config = facts.config;
  facts.count("n_heads", "num_attention_heads", model_limits::kHeads, config.n_heads);
  config.n_kv_heads = config.n_heads;
  facts.find_count("n_kv_heads", "num_key_value_heads", model_limits::kHeads, config.n_kv_heads);
  config.head_dim = default_head_dim;
  if (!facts.find_count("head_dim", "head_dim", model_limits::kHeadDim, config.head_dim) && default_head_dim == 0) {
    if (config.hidden_size % config.n_heads != 0) {
      facts.refuse(Reason::MODEL_CONFIG, "num_attention_heads", std::to_string(config.n_heads),
                   "a divisor of hidden_size " + std::to_string(config.hidden_size));
    }
    config.head_dim = config.hidden_size / config.n_heads;
  }
  float scalar = static_cast<float>(config.head_dim);
  facts.find_number("attention_scale", "query_pre_attn_scalar", scalar);
  config.attention_scale = 1 / std::sqrt(scalar);
}

void read_activation(FactReader& facts) {
  facts.ignore("hidden_act");  // hidden_activation overrides it
  const std::string_view key = facts.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const auto word = facts.find_word("activation", key);
  if (!word) return;
  if (*word == "silu") {
    facts.config.activation = GatedActivation::silu;
  } else if (*word == "gelu_pytorch_tanh") {
    facts.config.activation = GatedActivation::gelu_tanh;
  } else {
    facts.refuse(Reason::MODEL_UNSUPPORTED, key, printable(*word), "one of silu, gelu_pytorch_tanh");
  }
}

void read_tied_head(FactReader& facts, const TensorNames& names) {
  const bool stated_apart = facts.has("tie_word_embeddings") && !facts.find_flag("tie_word_embeddings");
  facts.config.tied_head = !stated_apart && !facts.has_tensor(names.head);
  if (stated_apart) facts.note_key("tied_head", "tie_word_embeddings");
}

RopeScalingKind scaling_kind(FactReader& facts, const std::string& at) {
  const bool has_old_key = facts.has(at + "type");  // rope_type wins if both exist
  const std::string key = facts.has(at + "rope_type") || !has_old_key ? at + "rope_type" : at + "type";
  const auto word = facts.find_word("rope_scaling", key);
  if (!word || *word == "default") return RopeScalingKind::none;
  if (*word == "linear") return RopeScalingKind::linear;
  if (*word == "yarn") return RopeScalingKind::yarn;
  if (*word == "llama3") return RopeScalingKind::wavelength;
  facts.refuse(Reason::MODEL_UNSUPPORTED, key, printable(*word), "one of default, linear, yarn, llama3");
}

// Reads the factor of cosine and sine, which only YaRN has: attention_factor, or else a factor computed from both
// mscales. One mscale without the other has no effect.
void read_yarn_magnitude(FactReader& facts, const std::string& at, RopeScaling& scaling) {
  if (scaling.kind != RopeScalingKind::yarn) {
    for (const char* key : {"mscale", "mscale_all_dim", "attention_factor"}) facts.ignore(at + key);
    return;
  }
  double mscale = 0, mscale_all_dim = 0;
  facts.find_number("rope_mscale", at + "mscale", mscale);
  facts.find_number("rope_mscale_all_dim", at + "mscale_all_dim", mscale_all_dim);
  if (facts.find_number("rope_attention_factor", at + "attention_factor", scaling.attention_factor)) {
    scaling.attention_factor /= yarn_magnitude(scaling);
  } else if (mscale != 0 && mscale_all_dim != 0) {
    scaling.mscale = mscale;
    scaling.mscale_all_dim = mscale_all_dim;
  }
}

void read_scaling(FactReader& facts, const std::string& at, RopeScaling& scaling) {
  scaling.kind = scaling_kind(facts, at);
  scaling.original_context = facts.config.trained_context;
  facts.find_count("rope_original_context", at + "original_max_position_embeddings", model_limits::kContext,
                   scaling.original_context);
  const bool has_factor = facts.find_number("rope_scaling_factor", at + "factor", scaling.factor);
  if (!has_factor && scaling.kind == RopeScalingKind::yarn) {
    scaling.factor = static_cast<double>(facts.config.trained_context) / scaling.original_context;
  }
  facts.find_number("rope_beta_fast", at + "beta_fast", scaling.beta_fast);
  facts.find_number("rope_beta_slow", at + "beta_slow", scaling.beta_slow);
  facts.find_number("rope_low_freq_factor", at + "low_freq_factor", scaling.low_freq_factor);
  facts.find_number("rope_high_freq_factor", at + "high_freq_factor", scaling.high_freq_factor);
  facts.find_flag("rope_truncated", at + "truncate", scaling.truncated);
  read_yarn_magnitude(facts, at, scaling);
  facts.ignore(at + "finetuned");  // how the model was trained: no effect
}

// Checkpoints of one model_type may also be classifiers or encoders.
void refuse_other_tasks(FactReader& facts) {
  const MetadataValue* value = facts.file().metadata().find("architectures");
  if (!value) return;
  const auto* tasks = std::get_if<StringArray>(&value->value);
  std::string found;
  for (std::size_t i = 0; tasks && i < tasks->size(); ++i) {
    if ((*tasks)[i].ends_with("ForCausalLM")) return;
    found += (found.empty() ? "" : ", ") + printable((*tasks)[i]);
  }
  facts.refuse(Reason::MODEL_UNSUPPORTED, "architectures", found.empty() ? "none" : found, "one ending in ForCausalLM");
}

// The file reader has already checked these keys if there are 8-bit weights.
void read_quantization(FactReader& facts) {
  if (!float8_scheme(facts.file().metadata())) return;
  for (const auto& [key, value] : facts.file().metadata().entries()) {
    if (is_quantization_key(key)) facts.ignore(key);
  }
}

// The prefix of the keys of layers without a window.
std::string rope_section(FactReader& facts) {
  for (const char* section : {"rope_parameters.full_attention.", "rope_parameters."}) {
    for (const char* key : {"rope_theta", "rope_type"}) {
      if (facts.has(std::string(section) + key)) return section;
    }
  }
  return "rope_scaling.";
}

}  // namespace

void read_hf_decoder(FactReader& facts, const TensorNames& names, int default_head_dim) {
  ModelConfig& config = facts.config;
  refuse_other_tasks(facts);
  read_quantization(facts);
  facts.count("n_layers", "num_hidden_layers", model_limits::kLayers, config.n_layers);
  facts.count("trained_context", "max_position_embeddings", model_limits::kContext, config.trained_context);
  config.max_context = config.trained_context;
  facts.origins.note("max_context", Origin::checkpoint, facts.origins.find("trained_context").source);
  facts.count("hidden_size", "hidden_size", model_limits::kHidden, config.hidden_size);
  facts.count("ffn_size", "intermediate_size", model_limits::kFfn, config.ffn_size);
  read_heads(facts, default_head_dim);
  facts.number("norm_epsilon", "rms_norm_eps", config.norm_epsilon);
  int n_tokens = 0;
  facts.count("n_tokens", "vocab_size", model_limits::kVocabulary, n_tokens);
  read_vocabulary(facts, names.embedding, n_tokens);
  if (facts.config.vocab_size != n_tokens) {
    facts.refuse_tensor(Reason::MODEL_TENSOR, names.embedding, std::to_string(facts.config.vocab_size) + " rows",
                        std::to_string(n_tokens) + ", as vocab_size says");
  }
  for (const char* key : {"eos_token_id", "generation_config.eos_token_id"}) {
    for (const std::uint32_t token : facts.find_integers(key)) check_end_token(facts, key, token);
  }
  read_activation(facts);
  if (facts.has("is_causal") && !facts.find_flag("is_causal")) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, "is_causal", "false", "true");
  }
  read_tied_head(facts, names);
  config.layers.assign(static_cast<std::size_t>(config.n_layers), LayerConfig{});
  skip_hf_bookkeeping(facts);
}

void read_hf_rope(FactReader& facts, RopeStyle style, double default_theta) {
  RopeConfig rope;
  rope.style = style;
  rope.theta = default_theta;
  const std::string section = rope_section(facts);
  facts.find_number("rope_theta", "rope_theta", rope.theta);
  facts.find_number("rope_theta", section + "rope_theta", rope.theta);
  float rotated = 1;
  facts.find_number("rope_dims", "partial_rotary_factor", rotated);
  facts.find_number("rope_dims", section + "partial_rotary_factor", rotated);
  rope.dims = static_cast<int>(static_cast<float>(facts.config.head_dim) * rotated);
  read_scaling(facts, section, rope.scaling);
  facts.config.ropes.push_back(rope);
}

void read_hf_windows(FactReader& facts, const MixedWindows& defaults) {
  ModelConfig& config = facts.config;
  MixedWindows windows = defaults;
  facts.find_count("windows", "sliding_window_size", model_limits::kContext, windows.window);
  facts.find_count("windows", "sliding_window", model_limits::kContext, windows.window);  // wins if both exist
  const StringArray* types = facts.find_words("windows", "layer_types");
  if (!types) {
    facts.find_count("windows", "sliding_window_pattern", model_limits::kLayers, windows.period);
    return set_windows(config, windowed_by_period(config, windows.period), windows);
  }
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) facts.ignore(key);  // layer_types wins
  if (types->size() != config.layers.size()) {
    facts.refuse(Reason::MODEL_CONFIG, "layer_types", std::to_string(types->size()) + " values",
                 "one for each of " + std::to_string(config.layers.size()) + " layers");
  }
  std::vector<bool> windowed(types->size());
  for (std::size_t i = 0; i < windowed.size(); ++i) {
    windowed[i] = (*types)[i] == "sliding_attention";
    if (!windowed[i] && (*types)[i] != "full_attention") {
      facts.refuse(Reason::MODEL_UNSUPPORTED, "layer_types", printable((*types)[i]),
                   "full_attention or sliding_attention");
    }
  }
  set_windows(config, windowed, windows);
}

void refuse_optional_windows(FactReader& facts) {
  if (facts.find_flag("use_sliding_window")) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, "use_sliding_window", "true", "false");
  }
  for (const char* key : {"sliding_window", "layer_types"}) facts.ignore(key);  // no effect
}

void read_hf_experts(FactReader& facts, std::string_view count_key, std::string_view ffn_size_key) {
  ModelConfig& config = facts.config;
  facts.count("n_experts", count_key, model_limits::kExperts, config.experts.n_experts);
  facts.count("n_experts_used", "num_experts_per_tok", model_limits::kExperts, config.experts.n_used);
  facts.count("expert_ffn_size", ffn_size_key, model_limits::kFfn, config.expert_ffn_size);
  // These concern training.
  for (const char* key : {"output_router_logits", "router_aux_loss_coef", "router_jitter_noise"}) facts.ignore(key);
}

void refuse_dense_layers(FactReader& facts) {
  const std::uint64_t step = facts.find_integer("decoder_sparse_step").value_or(1);
  if (step != 1) facts.refuse(Reason::MODEL_UNSUPPORTED, "decoder_sparse_step", std::to_string(step), "1");
  const std::size_t n_dense = facts.find_integers("mlp_only_layers").size();
  if (n_dense != 0) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, "mlp_only_layers", std::to_string(n_dense) + " layers", "none");
  }
}

void read_hf_soft_cap(FactReader& facts, std::string_view field, std::string_view key, float& cap) {
  if (facts.is_null(key)) cap = 0;
  facts.find_number(field, key, cap);
}

void skip_hf_bookkeeping(FactReader& facts) {
  constexpr std::array kKeys = {
      "_attn_implementation",
      "_attn_implementation_autoset",
      "architectures",
      "attention_bias",
      "attention_dropout",
      "attn_implementation",
      "auto_map",
      "bos_token_id",
      "cache_implementation",
      "dtype",
      "initializer_range",
      "max_window_layers",
      "mlp_bias",
      "model_type",
      "output_attentions",
      "output_hidden_states",
      "pad_token_id",
      "pretraining_tp",
      "return_dict",
      "torch_dtype",
      "transformers_version",
      "use_cache",
      "unk_token_id",
  };
  for (const char* key : kKeys) facts.ignore(key);
}

}  // namespace imp
