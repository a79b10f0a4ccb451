// Reads the keys that all GGUF decoders share.
#include "model/arch/gguf_facts.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/printable.h"
#include "model/arch/pooling_facts.h"
#include "model/arch/tensor_names.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

constexpr std::string_view kWindow = "attention.sliding_window";

// The number of tokens that the file lists, if it lists them. Otherwise `vocab_size`, which may be larger: an id beyond
// the list has no text.
std::optional<std::int64_t> count_tokens(FactReader& facts) {
  int stated = 0;
  const bool is_stated = facts.find_count("n_tokens", "vocab_size", model_limits::kVocabulary, stated);
  if (const StringArray* tokens = facts.file().metadata().find_strings("tokenizer.ggml.tokens")) {
    facts.note_key("n_tokens", "tokenizer.ggml.tokens");
    return static_cast<std::int64_t>(tokens->size());
  }
  return is_stated ? std::optional<std::int64_t>(stated) : std::nullopt;
}

void check_end_tokens(const FactReader& facts) {
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto token = facts.file().metadata().find_integer<std::uint32_t>(key);
    if (token) check_end_token(facts, key, *token);
  }
}

// A count for each layer, of families whose layers may differ. Files may also state one count for all.
class LayerCounts {
 public:
  LayerCounts(FactReader& facts, std::string_view field, std::string_view key, std::int64_t limit, GgufLayers layers) {
    if (layers == GgufLayers::equal) return;
    counts_ = facts.find_counts(field, key, limit);
    const auto n_layers = static_cast<std::size_t>(facts.config.n_layers);
    if (counts_.empty() || counts_.size() == n_layers) return;
    facts.refuse(Reason::MODEL_VALUE, key, std::to_string(counts_.size()) + " values",
                 "one for each of " + std::to_string(n_layers) + " layers");
  }
  bool is_list() const noexcept { return !counts_.empty(); }
  int first() const noexcept { return counts_.front(); }
  void set(std::vector<LayerConfig>& layers, int LayerConfig::* size) const {
    for (std::size_t i = 0; i < counts_.size(); ++i) layers[i].*size = counts_[i];
  }

 private:
  std::vector<int> counts_;
};

void read_heads(FactReader& facts, const LayerCounts& n_kv_heads) {
  ModelConfig& config = facts.config;
  facts.count("n_heads", "attention.head_count", model_limits::kHeads, config.n_heads);
  config.n_kv_heads = config.n_heads;
  if (n_kv_heads.is_list()) {
    config.n_kv_heads = n_kv_heads.first();
  } else {
    facts.find_count("n_kv_heads", "attention.head_count_kv", model_limits::kHeads, config.n_kv_heads);
  }
  if (!facts.find_count("head_dim", "attention.key_length", model_limits::kHeadDim, config.head_dim)) {
    if (config.hidden_size % config.n_heads != 0) {
      facts.refuse(Reason::MODEL_VALUE, "attention.head_count", std::to_string(config.n_heads),
                   "a divisor of embedding_length " + std::to_string(config.hidden_size));
    }
    config.head_dim = config.hidden_size / config.n_heads;
  }
  int value_length = config.head_dim;
  facts.find_count("head_dim", "attention.value_length", model_limits::kHeadDim, value_length);
  if (value_length != config.head_dim) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, "attention.value_length", std::to_string(value_length),
                 "the key length " + std::to_string(config.head_dim));
  }
  if (!facts.find_number("attention_scale", "attention.scale", config.attention_scale)) {
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.head_dim));
  }
}

RopeScalingKind read_scaling_kind(FactReader& facts, bool has_factor) {
  const auto word = facts.find_word("rope_scaling", "rope.scaling.type");
  if (!word && !has_factor) return RopeScalingKind::none;
  if (!word) {  // older files have only the factor
    facts.origins.note("rope_scaling", Origin::checkpoint, facts.origins.find("rope_scaling_factor").source);
    return RopeScalingKind::linear;
  }
  if (*word == "none") return RopeScalingKind::none;
  if (*word == "linear") return RopeScalingKind::linear;
  if (*word == "yarn") return RopeScalingKind::yarn;
  if (*word == "longrope" && facts.has_tensor(facts.names().long_rope_factors)) return RopeScalingKind::longrope;
  // GGUF has no key for llama3 scaling: files of such models hold the factors instead.
  facts.refuse(Reason::MODEL_UNSUPPORTED, "rope.scaling.type", printable(*word), "one of none, linear, yarn");
}

void read_scaling(FactReader& facts, RopeScaling& scaling) {
  bool has_factor = facts.find_number("rope_scaling_factor", "rope.scale_linear", scaling.factor);
  has_factor |= facts.find_number("rope_scaling_factor", "rope.scaling.factor", scaling.factor);
  scaling.kind = read_scaling_kind(facts, has_factor);
  scaling.original_context = facts.config.trained_context;
  facts.find_count("rope_original_context", "rope.scaling.original_context_length", model_limits::kContext,
                   scaling.original_context);
  facts.find_number("rope_extrapolation", "rope.scaling.yarn_ext_factor", scaling.extrapolation);
  facts.find_number("rope_beta_fast", "rope.scaling.yarn_beta_fast", scaling.beta_fast);
  facts.find_number("rope_beta_slow", "rope.scaling.yarn_beta_slow", scaling.beta_slow);
  double yarn_attention_factor = 1;  // files use either key, or both, which multiply
  facts.find_number("rope_attention_factor", "rope.scaling.yarn_attn_factor", yarn_attention_factor);
  facts.find_number("rope_attention_factor", "rope.scaling.attn_factor", scaling.attention_factor);
  scaling.attention_factor *= yarn_attention_factor;
  facts.ignore("rope.scaling.finetuned");  // how the model was trained: no effect
}

}  // namespace

void read_gguf_decoder(FactReader& facts, NormKind norm_kind, GgufLayers layers) {
  ModelConfig& config = facts.config;
  facts.count("n_layers", "block_count", model_limits::kLayers, config.n_layers);
  facts.count("trained_context", "context_length", model_limits::kContext, config.trained_context);
  config.max_context = config.trained_context;
  facts.origins.note("max_context", Origin::checkpoint, facts.origins.find("trained_context").source);
  facts.count("hidden_size", "embedding_length", model_limits::kHidden, config.hidden_size);
  // Models in which every layer has the same experts may not state the size of another feed-forward.
  constexpr std::string_view kFfnSize = "feed_forward_length", kExpertSize = "expert_feed_forward_length";
  const bool has_only_experts = layers == GgufLayers::equal && !facts.has(kFfnSize) && facts.has(kExpertSize);
  const LayerCounts ffn_sizes(facts, "ffn_size", kFfnSize, model_limits::kFfn, layers);
  if (ffn_sizes.is_list()) {
    config.ffn_size = ffn_sizes.first();
  } else {
    facts.count("ffn_size", has_only_experts ? kExpertSize : kFfnSize, model_limits::kFfn, config.ffn_size);
  }
  const LayerCounts n_kv_heads(facts, "n_kv_heads", "attention.head_count_kv", model_limits::kHeads, layers);
  read_heads(facts, n_kv_heads);
  // The other key belongs to the other kind of norm.
  constexpr std::string_view kRmsEpsilon = "attention.layer_norm_rms_epsilon";
  constexpr std::string_view kLayerEpsilon = "attention.layer_norm_epsilon";
  config.norm_kind = norm_kind;
  facts.number("norm_epsilon", norm_kind == NormKind::rms ? kRmsEpsilon : kLayerEpsilon, config.norm_epsilon);
  facts.ignore(norm_kind == NormKind::rms ? kLayerEpsilon : kRmsEpsilon);
  require_causal(facts, "attention.causal");
  read_vocabulary(facts, facts.names().embedding, count_tokens(facts));
  check_end_tokens(facts);
  config.tied_head = config.has_head && !facts.has_tensor(facts.names().output_head);
  if (config.has_head && !config.tied_head) facts.note_tensor("tied_head", facts.names().output_head);
  add_layers(config);
  read_gguf_pooling(facts);
  ffn_sizes.set(config.layers, &LayerConfig::ffn_size);
  n_kv_heads.set(config.layers, &LayerConfig::n_kv_heads);
}

bool has_gguf_experts(FactReader& facts) {
  if (facts.find_integer("expert_count").value_or(0) != 0) return true;
  facts.ignore("expert_used_count");  // no effect without experts
  if (facts.has_tensor(facts.names().weight(0, facts.names().router))) {
    facts.refuse(Reason::MODEL_VALUE, "expert_count", "0", "the number of experts that the router chooses from");
  }
  return false;
}

void refuse_gguf_experts(FactReader& facts) {
  if (!has_gguf_experts(facts)) return;
  const std::uint64_t n_experts = *facts.find_integer("expert_count");
  facts.refuse(Reason::MODEL_UNSUPPORTED, "expert_count", std::to_string(n_experts), "no experts");
}

void read_gguf_experts(FactReader& facts, bool normalized) {
  ModelConfig& config = facts.config;
  facts.count("n_experts", "expert_count", model_limits::kExperts, config.experts.n_experts);
  facts.count("n_experts_used", "expert_used_count", model_limits::kExperts, config.experts.n_used);
  config.expert_ffn_size = config.ffn_size;
  facts.origins.note("expert_ffn_size", Origin::checkpoint, facts.origins.find("ffn_size").source);
  facts.find_count("expert_ffn_size", "expert_feed_forward_length", model_limits::kFfn, config.expert_ffn_size);
  config.experts.normalized = normalized;
  give_all_layers_experts(config);
  facts.find_flag("expert_weights_normalized", "expert_weights_norm", config.experts.normalized);
  facts.find_number("expert_weights_scale", "expert_weights_scale", config.experts.scale);
  constexpr std::uint64_t kSoftmax = 1, kSoftmaxOfChosen = 3;
  const std::uint64_t function = facts.find_integer("expert_gating_func").value_or(kSoftmax);
  if (function == kSoftmaxOfChosen) config.experts.normalized = true;
  if (function != kSoftmax && function != kSoftmaxOfChosen) {
    facts.refuse(Reason::MODEL_UNSUPPORTED, "expert_gating_func", std::to_string(function), "1, a softmax");
  }
}

void read_gguf_rope(FactReader& facts, RopeStyle style, double default_theta) {
  RopeConfig rope;
  rope.style = style;
  rope.dims = facts.config.head_dim;
  facts.find_count("rope_dims", "rope.dimension_count", model_limits::kHeadDim, rope.dims);
  rope.theta = default_theta;
  facts.find_number("rope_theta", "rope.freq_base", rope.theta);
  read_scaling(facts, rope.scaling);
  const TensorNames& names = facts.names();
  for (const std::string_view factors : {names.rope_factors, names.short_rope_factors, names.long_rope_factors}) {
    if (!facts.has_tensor(factors)) continue;
    rope.file_factors = true;
    facts.note_tensor("rope_file_factors", factors);
    if (factors != names.rope_factors) rope.scaling.kind = RopeScalingKind::longrope;  // older files do not say so
  }
  facts.config.ropes.push_back(rope);
}

bool has_gguf_windows(FactReader& facts) {
  return facts.find_integer(kWindow).value_or(0) != 0;  // files of Phi-4 say 0 for none
}

void read_gguf_window(FactReader& facts) {
  if (!has_gguf_windows(facts)) return;
  int window = 0;
  facts.count("windows", kWindow, model_limits::kContext, window);
  for (LayerConfig& layer : facts.config.layers) layer.window = window;
}

void read_gguf_windows(FactReader& facts, const MixedWindows& defaults) {
  ModelConfig& config = facts.config;
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  MixedWindows windows = defaults;
  facts.find_count("windows", kWindow, model_limits::kContext, windows.window);
  if (const auto flags = facts.find_flags("windows", kPattern)) {
    if (flags->size() != config.layers.size()) {
      facts.refuse(Reason::MODEL_VALUE, kPattern, std::to_string(flags->size()) + " values",
                   "one for each of " + std::to_string(config.layers.size()) + " layers");
    }
    return set_windows(config, *flags, windows);
  }
  facts.find_count("windows", kPattern, model_limits::kLayers, windows.period);
  set_windows(config, all_but_last_of(config, windows.period), windows);
}

}  // namespace imp
