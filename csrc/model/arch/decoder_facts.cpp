// Reads the facts that GGUF decoders share.
#include "model/arch/decoder_facts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/printable.h"
#include "model/arch/tensor_names.h"
#include "model/model_limits.h"

namespace imp {
namespace {

// Rows of the embedding may be more than the tokenizer's tokens (padding): those are never drawn.
void read_vocabulary(FactReader& facts) {
  const std::string_view name = kGgufNames.embedding;
  const TensorInfo* embedding = facts.file().find(name);
  if (!embedding) facts.refuse_tensor(Reason::MODEL_TENSOR, name, "missing", "the embedding");
  const std::int64_t rows = embedding->dims[1];
  if (rows > model_limits::kVocabulary) {
    facts.refuse_tensor(Reason::MODEL_LIMIT, name, std::to_string(rows) + " rows",
                        "at most " + std::to_string(model_limits::kVocabulary));
  }
  std::int64_t n_tokens = rows;
  if (const StringArray* tokens = facts.file().metadata().find_strings("tokenizer.ggml.tokens")) {
    n_tokens = static_cast<std::int64_t>(tokens->size());
  }
  int stated = 0;
  if (facts.find_count("vocab_size", "vocab_size", model_limits::kVocabulary, stated)) {
    n_tokens = std::max<std::int64_t>(n_tokens, stated);
  }
  if (rows < n_tokens) {
    facts.refuse_tensor(Reason::MODEL_TENSOR, name, "shape " + shape_text(*embedding),
                        "rows for " + std::to_string(n_tokens) + " tokens");
  }
  facts.config.vocab_size = static_cast<int>(rows);
  facts.note_tensor("vocab_size", name);
  for (std::int64_t id = n_tokens; id < rows; ++id) {
    facts.config.suppressed_tokens.push_back(static_cast<std::int32_t>(id));
  }
}

void read_end_tokens(FactReader& facts) {
  std::vector<std::int32_t>& tokens = facts.config.eos_tokens;
  std::string sources;
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto token = facts.file().metadata().find_integer<std::uint32_t>(key);
    if (!token) continue;
    if (*token >= static_cast<std::uint32_t>(facts.config.vocab_size)) {
      facts.file().metadata().refuse_value(key, std::to_string(*token),
                                           "less than " + std::to_string(facts.config.vocab_size));
    }
    tokens.push_back(static_cast<std::int32_t>(*token));
    sources += (sources.empty() ? "" : ", ") + std::string(key);
  }
  std::ranges::sort(tokens);
  tokens.erase(std::ranges::unique(tokens).begin(), tokens.end());
  if (!tokens.empty()) facts.note_key("eos_tokens", sources);
}

void read_heads(FactReader& facts) {
  ModelConfig& config = facts.config;
  facts.count("n_heads", "attention.head_count", model_limits::kHeads, config.n_heads);
  config.n_kv_heads = config.n_heads;
  facts.find_count("n_kv_heads", "attention.head_count_kv", model_limits::kHeads, config.n_kv_heads);
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

void refuse_experts(FactReader& facts) {
  const std::uint64_t n_experts = facts.find_integer("expert_count").value_or(0);
  if (n_experts != 0) facts.refuse(Reason::MODEL_UNSUPPORTED, "expert_count", std::to_string(n_experts), "no experts");
  facts.has("expert_used_count");  // says nothing where there are none
}

RopeScalingKind read_scaling_kind(FactReader& facts, bool has_factor) {
  const auto word = facts.find_word("rope_scaling", "rope.scaling.type");
  if (!word && !has_factor) return RopeScalingKind::none;
  if (!word) {  // files older than the key for the kind have a factor alone
    facts.origins.note("rope_scaling", Origin::checkpoint, facts.origins.find("rope_scaling_factor").source);
    return RopeScalingKind::linear;
  }
  if (*word == "none") return RopeScalingKind::none;
  if (*word == "linear") return RopeScalingKind::linear;
  if (*word == "yarn") return RopeScalingKind::yarn;
  // llama3 scaling has no word in GGUF: its files hold factors.
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
  double yarn_attention_factor = 1;  // both keys are in use, and both count
  facts.find_number("rope_attention_factor", "rope.scaling.yarn_attn_factor", yarn_attention_factor);
  facts.find_number("rope_attention_factor", "rope.scaling.attn_factor", scaling.attention_factor);
  scaling.attention_factor *= yarn_attention_factor;
  facts.has("rope.scaling.finetuned");  // history, not arithmetic
}

}  // namespace

void read_decoder(FactReader& facts) {
  ModelConfig& config = facts.config;
  facts.count("n_layers", "block_count", model_limits::kLayers, config.n_layers);
  facts.count("trained_context", "context_length", model_limits::kContext, config.trained_context);
  config.max_context = config.trained_context;
  facts.origins.note("max_context", Origin::checkpoint, facts.origins.find("trained_context").source);
  facts.count("hidden_size", "embedding_length", model_limits::kHidden, config.hidden_size);
  facts.count("ffn_size", "feed_forward_length", model_limits::kFfn, config.ffn_size);
  read_heads(facts);
  facts.number("norm_epsilon", "attention.layer_norm_rms_epsilon", config.norm_epsilon);
  refuse_experts(facts);
  read_vocabulary(facts);
  read_end_tokens(facts);
  config.tied_head = !facts.has_tensor(kGgufNames.head);
  if (!config.tied_head) facts.note_tensor("tied_head", kGgufNames.head);
  config.layers.assign(static_cast<std::size_t>(config.n_layers), LayerConfig{});
}

void read_rope(FactReader& facts, RopeStyle style, double default_theta) {
  RopeConfig rope;
  rope.style = style;
  rope.dims = facts.config.head_dim;
  facts.find_count("rope_dims", "rope.dimension_count", model_limits::kHeadDim, rope.dims);
  rope.theta = default_theta;
  facts.find_number("rope_theta", "rope.freq_base", rope.theta);
  read_scaling(facts, rope.scaling);
  rope.file_factors = facts.has_tensor(kGgufNames.rope_factors);
  if (rope.file_factors) facts.note_tensor("rope_file_factors", kGgufNames.rope_factors);
  facts.config.ropes.push_back(rope);
}

void read_biases(FactReader& facts) {
  const auto find = [&](std::string_view field, std::string_view tensor, bool& out) {
    const std::string name = kGgufNames.bias(0, tensor);
    out = facts.has_tensor(name);
    if (out) facts.note_tensor(field, name);
  };
  find("qkv_bias", kGgufNames.q, facts.config.qkv_bias);
  find("output_bias", kGgufNames.output, facts.config.output_bias);
  find("ffn_bias", kGgufNames.gate, facts.config.ffn_bias);
}

void read_window(FactReader& facts) {
  int window = 0;
  facts.find_count("windows", "attention.sliding_window", model_limits::kContext, window);
  for (LayerConfig& layer : facts.config.layers) layer.window = window;
}

void read_mixed_windows(FactReader& facts, const MixedWindows& defaults) {
  ModelConfig& config = facts.config;
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  int window = defaults.window;
  facts.find_count("windows", "attention.sliding_window", model_limits::kContext, window);
  std::vector<bool> windowed(config.layers.size());
  int period = defaults.period;
  if (const auto flags = facts.find_flags("windows", kPattern)) {
    windowed = *flags;
    if (windowed.size() != config.layers.size()) {
      facts.refuse(Reason::MODEL_VALUE, kPattern, std::to_string(windowed.size()) + " values",
                   "one for each of " + std::to_string(config.layers.size()) + " layers");
    }
  } else {
    facts.find_count("windows", kPattern, model_limits::kLayers, period);
    for (std::size_t i = 0; i < windowed.size(); ++i) windowed[i] = (i + 1) % static_cast<std::size_t>(period) != 0;
  }
  for (std::size_t i = 0; i < windowed.size(); ++i) {
    if (windowed[i]) config.layers[i] = LayerConfig{.window = window, .rope = defaults.rope};
  }
}

void read_gemma(FactReader& facts) {
  ModelConfig& config = facts.config;
  read_decoder(facts);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  config.norm_placement = NormPlacement::pre_and_post;
  config.activation = GatedActivation::gelu_tanh;
}

}  // namespace imp
