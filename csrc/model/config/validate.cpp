// Checks each field of a configuration, and says what it expects.
#include "model/config/validate.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/config/model_limits.h"
#include "model/config/number_text.h"

namespace imp {
namespace {

class Rules {
 public:
  Rules(const ModelConfig& config, const Origins& origins, std::string_view where, Reason wrong_value)
      : config_(config), origins_(origins), where_(where), wrong_value_(wrong_value) {}

  void check_layers() const {
    count("n_layers", config_.n_layers, model_limits::kLayers);
    count("hidden_size", config_.hidden_size, model_limits::kHidden);
    count("ffn_size", config_.ffn_size, model_limits::kFfn);
    count("n_heads", config_.n_heads, model_limits::kHeads);
    count("n_kv_heads", config_.n_kv_heads, model_limits::kHeads);
    count("head_dim", config_.head_dim, model_limits::kHeadDim);
    count("max_context", config_.max_context, model_limits::kContext);
    for (const LayerConfig& layer : config_.layers) check_layer_sizes(layer);
  }

  void check_tables() const {
    count("vocab_size", config_.vocab_size, model_limits::kVocabulary);
    if (config_.layer_embedding.size != 0)
      count("layer_embedding_size", config_.layer_embedding.size, model_limits::kHidden);
  }

  void check_numbers() const {
    between("norm_epsilon", config_.norm_epsilon, 0, 1);
    for (const LayerConfig& layer : config_.layers) {
      for (const float value : {layer.xielu.positive, layer.xielu.negative, layer.xielu.slope, layer.xielu.largest}) {
        require(std::isfinite(value), "xielu", number_text(value), "a finite number");
      }
    }
    for (const LayerConfig& layer : config_.layers) {
      require(std::isfinite(layer.output_scale), "layer_output_scale", number_text(layer.output_scale),
              "a finite number");
    }
    positive("attention_scale", config_.attention_scale);
    positive("embedding_scale", config_.embedding_scale);
    positive("residual_scale", config_.residual_scale);
    positive("logit_scale", config_.logit_scale);
    not_negative("attention_soft_cap", config_.attention_soft_cap);
    not_negative("query_scale_growth", config_.query_scale.growth);
    if (config_.query_scale.growth != 0) {
      count("query_scale_period", config_.query_scale.period, model_limits::kContext);
    }
    not_negative("logit_soft_cap", config_.logit_soft_cap);
  }

  void check_ropes() const {
    if (config_.ropes.empty()) return;
    check_rope(config_.ropes.front());
    if (config_.ropes.size() > 1) positive("windowed_rope_theta", config_.ropes[1].theta);
    for (const RopeConfig& rope : config_.ropes) check_planes(rope);
    for (const LayerConfig& layer : config_.layers) check_rotated_dims(layer);
  }

  void check_pooling() const {
    const bool has_no_cls = config_.pooling == Pooling::cls && !config_.is_two_sided;
    require(!has_no_cls, "pooling", "cls", "mean or last: the first row sees no other", Reason::MODEL_UNSUPPORTED);
    require(config_.pooling != Pooling::rank || config_.score_head, "pooling", "rank",
            "another kind: imp computes no classifier of this file", Reason::MODEL_UNSUPPORTED);
  }

  void check_experts() const {
    if (!config_.has_experts()) return;
    const int n_experts = config_.experts.n_experts;
    count("n_experts", n_experts, model_limits::kExperts);
    const std::int64_t in_all = std::int64_t{n_experts} * config_.n_layers;
    require(in_all <= model_limits::kExpertsInAll, "n_experts",
            std::to_string(n_experts) + " in each of " + std::to_string(config_.n_layers) + " layers",
            "at most " + std::to_string(model_limits::kExpertsInAll) + " in all", Reason::MODEL_LIMIT);
    require(config_.experts.n_used >= 1 && config_.experts.n_used <= n_experts, "n_experts_used",
            std::to_string(config_.experts.n_used), "1 to the " + std::to_string(n_experts) + " experts");
    count("expert_ffn_size", config_.expert_ffn_size, model_limits::kFfn);
    positive("expert_weights_scale", config_.experts.scale);
    if (config_.clamped_silu) {
      positive("gate_limit", config_.clamped_silu->limit);
      positive("gate_slope", config_.clamped_silu->slope);
    }
    if (config_.shared_ffn_size != 0) count("shared_ffn_size", config_.shared_ffn_size, model_limits::kFfn);
  }

  void check_linear_attention() const {
    if (config_.n_state_layers() == 0) return;
    const DeltaRule& rule = config_.delta;
    between("conv_taps", config_.conv_taps, 1, kMaxConvTaps + 1);
    count("delta_key_heads", rule.n_key_heads, model_limits::kHeads);
    count("delta_value_heads", rule.n_value_heads, model_limits::kHeads);
    count("delta_key_dim", rule.key_dim, kMaxDeltaKeyDim);
    count("delta_value_dim", rule.value_dim, model_limits::kHeadDim);
    require(rule.n_value_heads % rule.n_key_heads == 0, "delta_value_heads", std::to_string(rule.n_value_heads),
            "a multiple of the " + std::to_string(rule.n_key_heads) + " key heads");
    require(config_.n_kv_layers() > 0, "linear_layers", "all", "at least one layer with softmax attention");
  }

  void check_cache() const {
    const std::vector<KvTypes> by_layer = config_.kv_types_by_layer(config_.kv_types);
    for (const LayerConfig& layer : config_.layers) {
      if (layer.kv == kNoKv) continue;
      const KvTypes types = by_layer[static_cast<std::size_t>(layer.kv)];
      const bool has_blocks = traits(types.k).is_quantized || traits(types.v).is_quantized;
      require(!has_blocks || layer.head_dim % kKvBlock == 0, types == config_.kv_types ? "kv_dtype" : "kv_layers",
              text_of(types) + " with head_dim " + std::to_string(layer.head_dim), "head_dim a multiple of 32");
    }
  }

  void check_tokens() const {
    tokens("eos_tokens", config_.eos_tokens, config_.n_tokens);
    tokens("suppressed_tokens", config_.suppressed_tokens, config_.vocab_size);
    require(config_.suppressed_tokens.size() < static_cast<std::size_t>(config_.vocab_size), "suppressed_tokens",
            "every token", "at least one that is not");
  }

 private:
  // Windowed layers may have heads of their own.
  void check_layer_sizes(const LayerConfig& layer) const {
    const bool is_own = layer.head_dim != config_.head_dim || layer.n_kv_heads != config_.n_kv_heads;
    const std::string_view kv_field = is_own ? "windowed_n_kv_heads" : "n_kv_heads";
    count(is_own ? "windowed_head_dim" : "head_dim", layer.head_dim, model_limits::kHeadDim);
    count(kv_field, layer.n_kv_heads, model_limits::kHeads);
    count("ffn_size", layer.ffn_size, model_limits::kFfn);
    require(config_.n_heads % layer.n_kv_heads == 0, kv_field, std::to_string(layer.n_kv_heads),
            "a divisor of the " + std::to_string(config_.n_heads) + " heads");
  }

  // RoPE is applied in place: more dimensions than the head has would overwrite the next head.
  void check_rotated_dims(const LayerConfig& layer) const {
    if (layer.rope == kNoRope) return;
    const int dims = config_.ropes[static_cast<std::size_t>(layer.rope)].dims;
    require(dims > 0 && dims % 2 == 0 && dims <= layer.head_dim, layer.rope == 0 ? "rope_dims" : "windowed_rope_dims",
            std::to_string(dims), "even, at most the head's " + std::to_string(layer.head_dim));
  }

  void check_rope(const RopeConfig& rope) const {
    require(rope.dims > 0 && rope.dims % 2 == 0 && rope.dims <= config_.head_dim, "rope_dims",
            std::to_string(rope.dims), "even, at most the head's " + std::to_string(config_.head_dim));
    const RopeScaling& scaling = rope.scaling;
    // YaRN divides by the logarithm of theta to find the pair of a given frequency.
    above("rope_theta", rope.theta, scaling.kind == RopeScalingKind::yarn ? 1 : 0);
    positive("rope_scaling_factor", scaling.factor);
    positive("rope_attention_factor", scaling.attention_factor);
    positive("rope_mscale", scaling.mscale);
    require(scaling.mscale_all_dim >= 0 && std::isfinite(scaling.mscale_all_dim), "rope_mscale_all_dim",
            number_text(scaling.mscale_all_dim), "a number of at least 0");
    positive("rope_beta_fast", scaling.beta_fast);
    positive("rope_beta_slow", scaling.beta_slow);
    positive("rope_low_freq_factor", scaling.low_freq_factor);
    positive("rope_high_freq_factor", scaling.high_freq_factor);
    require(scaling.extrapolation >= 0 && scaling.extrapolation <= 1, "rope_extrapolation",
            number_text(scaling.extrapolation), "from 0 to 1");
    if (scaling.kind != RopeScalingKind::none && scaling.kind != RopeScalingKind::linear) {
      count("rope_original_context", scaling.original_context, model_limits::kContext);
    }
    require(scaling.kind != RopeScalingKind::dynamic || rope.dims > 2, "rope_dims", std::to_string(rope.dims),
            "more than 2 with dynamic scaling");
  }

  void check_planes(const RopeConfig& rope) const {
    if (rope.planes.empty()) return;
    require(std::ssize(rope.planes) == rope.dims / 2, "rope_planes", std::to_string(rope.planes.size()) + " planes",
            "one for each of the " + std::to_string(rope.dims / 2) + " pairs");
    for (const int plane : rope.planes) {
      require(plane < kMaxPlanes, "rope_planes", std::to_string(plane), "less than " + std::to_string(kMaxPlanes));
    }
  }

  void tokens(std::string_view field, const std::vector<std::int32_t>& ids, int n_ids) const {
    for (const std::int32_t id : ids) {
      require(id >= 0 && id < n_ids, field, std::to_string(id), "0 to " + std::to_string(n_ids - 1));
    }
  }

  void count(std::string_view field, std::int64_t value, std::int64_t limit) const {
    require(value >= 1 && value <= limit, field, std::to_string(value), "1 to " + std::to_string(limit),
            value > limit ? Reason::MODEL_LIMIT : wrong_value_);
  }
  // Comparisons are written so that NaN fails.
  void between(std::string_view field, double value, double low, double high) const {
    require(value > low && value < high, field, number_text(value),
            "above " + number_text(low) + " and below " + number_text(high));
  }
  void above(std::string_view field, double value, double low) const {
    require(value > low && std::isfinite(value), field, number_text(value), "finite and above " + number_text(low));
  }
  void positive(std::string_view field, double value) const { above(field, value, 0); }
  void not_negative(std::string_view field, double value) const {
    require(value >= 0 && std::isfinite(value), field, number_text(value), "finite and not negative");
  }

  void require(bool holds, std::string_view field, const std::string& found, const std::string& expected,
               std::optional<Reason> reason = {}) const {
    if (holds) return;
    const OriginNote note = origins_.find(field);
    throw ModelError(note.origin == Origin::user ? Reason::OVERRIDE_INVALID : reason.value_or(wrong_value_),
                     std::string(where_) + ": " + (note.source.empty() ? std::string(field) : note.source) + ": " +
                         found + ", expected " + expected);
  }

  const ModelConfig& config_;
  const Origins& origins_;
  std::string_view where_;
  Reason wrong_value_;
};

}  // namespace

void validate(const ModelConfig& config, const Origins& origins, std::string_view where, Reason wrong_value) {
  IMP_CHECK(!config.ropes.empty() || config.text_embedding.position_rows > 0);
  IMP_CHECK(config.layers.size() == static_cast<std::size_t>(config.n_layers));
  const Rules rules(config, origins, where, wrong_value);
  rules.check_layers();
  rules.check_tables();
  rules.check_numbers();
  rules.check_ropes();
  rules.check_pooling();
  rules.check_experts();
  rules.check_linear_attention();
  rules.check_cache();
  rules.check_tokens();
}

void validate_layers(const ModelConfig& config, const Origins& origins, std::string_view where, Reason wrong_value) {
  IMP_CHECK(config.layers.size() == static_cast<std::size_t>(config.n_layers));
  const Rules rules(config, origins, where, wrong_value);
  rules.check_layers();
  rules.check_numbers();
  rules.check_ropes();
}

}  // namespace imp
