// Applies each override to the configuration and notes its origin.
#include "model/config/apply_overrides.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/config/kv_layers.h"

namespace imp {
namespace {

std::vector<std::int32_t> ascending(std::vector<std::int32_t> ids) {
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

// Sets a field and records the override as its origin.
class Overlay {
 public:
  explicit Overlay(Origins& origins) : origins_(origins) {}
  template <class Value, class Field>
  void set(const std::optional<Value>& value, Field& field, std::string_view name, std::string_view override) const {
    if (!value) return;
    field = *value;
    origins_.note(name, Origin::user, "override " + std::string(override));
  }

 private:
  Origins& origins_;
};

void override_scaling(const RopeScalingOverride& from, RopeConfig& rope, const Overlay& overlay) {
  RopeScaling& scaling = rope.scaling;
  overlay.set(from.kind, scaling.kind, "rope_scaling", "rope_scaling.type");
  if (from.kind) rope.file_factors = false;
  overlay.set(from.factor, scaling.factor, "rope_scaling_factor", "rope_scaling.factor");
  overlay.set(from.original_context, scaling.original_context, "rope_original_context",
              "rope_scaling.original_context");
  overlay.set(from.attention_factor, scaling.attention_factor, "rope_attention_factor",
              "rope_scaling.attention_factor");
  overlay.set(from.beta_fast, scaling.beta_fast, "rope_beta_fast", "rope_scaling.beta_fast");
  overlay.set(from.beta_slow, scaling.beta_slow, "rope_beta_slow", "rope_scaling.beta_slow");
  overlay.set(from.low_freq_factor, scaling.low_freq_factor, "rope_low_freq_factor", "rope_scaling.low_freq_factor");
  overlay.set(from.high_freq_factor, scaling.high_freq_factor, "rope_high_freq_factor",
              "rope_scaling.high_freq_factor");
}

void override_rope(const ModelOverrides& from, ModelConfig& config, const Overlay& overlay) {
  if (config.ropes.empty()) {
    if (!from.rope_theta && from.rope_scaling == RopeScalingOverride{}) return;
    throw ModelError(Reason::OVERRIDE_INVALID, "override rope_theta or rope_scaling: the model rotates no positions");
  }
  overlay.set(from.rope_theta, config.ropes.front().theta, "rope_theta", "rope_theta");
  override_scaling(from.rope_scaling, config.ropes.front(), overlay);
}

}  // namespace

void apply_overrides(const ModelOverrides& overrides, ModelConfig& config, Origins& origins) {
  const Overlay overlay(origins);
  overlay.set(overrides.max_context, config.max_context, "max_context", "max_context");
  if (overrides.context_limit && *overrides.context_limit < config.max_context) {
    overlay.set(overrides.context_limit, config.max_context, "max_context", "max_context");
  }
  overlay.set(overrides.pooling, config.pooling, "pooling", "pooling");
  overlay.set(overrides.kv_types, config.kv_types, "kv_dtype", "kv_dtype");
  if (!overrides.kv_layers.empty()) {
    overlay.set(std::optional(read_kv_layers(overrides.kv_layers, config.n_kv_layers())), config.kv_ranges, "kv_layers",
                "kv_layers");
  }
  override_rope(overrides, config, overlay);
  overlay.set(overrides.eos_token_ids, config.eos_tokens, "eos_tokens", "eos_token_ids");
  config.eos_tokens = ascending(std::move(config.eos_tokens));
  if (overrides.suppress_tokens) {
    std::vector<std::int32_t> both = config.suppressed_tokens;
    both.insert(both.end(), overrides.suppress_tokens->begin(), overrides.suppress_tokens->end());
    overlay.set(std::optional(ascending(std::move(both))), config.suppressed_tokens, "suppressed_tokens",
                "suppress_tokens");
  }
}

}  // namespace imp
