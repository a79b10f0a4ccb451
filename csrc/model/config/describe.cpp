// Writes each field of a configuration as text.
#include "model/config/describe.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/config/fact_text.h"
#include "model/config/kv_layers.h"
#include "model/config/number_text.h"

namespace imp {
namespace {

std::string text_of(int value) {
  return std::to_string(value);
}
std::string text_of(float value) {
  return number_text(value);
}
std::string text_of(double value) {
  return number_text(value);
}
std::string text_of(bool value) {
  return value ? "yes" : "no";
}
// "3, 5, 8"; for a long list the first ones and the total number.
std::string text_of(const std::vector<std::int32_t>& ids) {
  constexpr std::size_t kShown = 8;
  std::string text = ids.empty() ? "none" : "";
  for (std::size_t i = 0; i < ids.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + std::to_string(ids[i]);
  if (ids.size() > kShown) text += ", ... (" + std::to_string(ids.size()) + " in all)";
  return text;
}

// The layers that a condition holds for: "0-4, 6-10", or nothing.
template <class Condition>
std::string layers_text(const std::vector<LayerConfig>& layers, const Condition& holds) {
  std::string text;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!holds(layers[i])) continue;
    std::size_t last = i;
    while (last + 1 < layers.size() && holds(layers[last + 1])) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(i);
    if (last > i) text.append("-").append(std::to_string(last));
    i = last;
  }
  return text;
}

// "none", or "1024 in layers 0-4, 6-10". All windows of a model have one size.
std::string windows_text(const std::vector<LayerConfig>& layers) {
  int window = 0;
  for (const LayerConfig& layer : layers) window = std::max(window, layer.window);
  if (window == 0) return "none";
  return std::to_string(window) + " in layers " +
         layers_text(layers, [](const auto& layer) { return layer.window > 0; });
}

std::string or_none(const std::string& text) {
  return text.empty() ? "none" : text;
}
std::string layers_without_rope(const std::vector<LayerConfig>& layers) {
  return or_none(layers_text(layers, [](const auto& layer) { return layer.rope == kNoRope; }));
}
// Empty if all layers have heads of one size.
const LayerConfig* layer_with_own_heads(const ModelConfig& config) {
  const auto found = std::ranges::find_if(config.layers, [&](const LayerConfig& layer) {
    return layer.head_dim != config.head_dim || layer.n_kv_heads != config.n_kv_heads;
  });
  return found == config.layers.end() ? nullptr : &*found;
}
std::string layers_text_of(const ModelConfig& config, bool LayerConfig::* holds) {
  return layers_text(config.layers, [&](const auto& layer) { return layer.*holds; });
}
std::string layers_without_experts(const std::vector<LayerConfig>& layers) {
  return or_none(layers_text(layers, [](const auto& layer) { return !layer.has_experts; }));
}

// Collects the facts in order and adds the origin of each.
class Sheet {
 public:
  explicit Sheet(const Origins& origins) : origins_(origins) {}
  template <class Value>
  void add(std::string_view field, const Value& value) {
    add_text(field, text_of(value));
  }
  void add_text(std::string_view field, std::string text) {
    OriginNote note = origins_.find(field);
    facts_.push_back({std::string(field), std::move(text), note.origin, std::move(note.source)});
  }
  std::vector<Fact> take() && { return std::move(facts_); }

 private:
  const Origins& origins_;
  std::vector<Fact> facts_;
};

void add_sizes(Sheet& sheet, const ModelConfig& config) {
  sheet.add("n_layers", config.n_layers);
  sheet.add("hidden_size", config.hidden_size);
  sheet.add("ffn_size", config.ffn_size);
  sheet.add("n_heads", config.n_heads);
  sheet.add("n_kv_heads", config.n_kv_heads);
  sheet.add("head_dim", config.head_dim);
  if (const LayerConfig* own = layer_with_own_heads(config)) {
    sheet.add("windowed_n_kv_heads", own->n_kv_heads);
    sheet.add("windowed_head_dim", own->head_dim);
  }
  sheet.add("vocab_size", config.vocab_size);
  sheet.add("n_tokens", config.n_tokens);
  sheet.add("trained_context", config.trained_context);
  sheet.add("max_context", config.max_context);
}

// Of encoders and of models that make vectors of texts.
void add_text_facts(Sheet& sheet, const ModelConfig& config) {
  const TextEmbedding& text = config.text_embedding;
  if (config.is_two_sided) sheet.add("is_two_sided", true);
  if (!config.has_head) sheet.add("has_head", false);
  if (text.position_rows > 0) {
    sheet.add("position_rows", text.position_rows);
    sheet.add("position_offset", text.position_offset);
  }
  if (text.n_token_types > 0) sheet.add("n_token_types", text.n_token_types);
  if (text.is_normed) sheet.add("embedding_norm", true);
  if (config.is_two_sided || config.pooling != Pooling::none) sheet.add("pooling", config.pooling);
  for (const Projection& projection : config.projections) sheet.add("projections", projection.size);
}

void add_ropes(Sheet& sheet, const ModelConfig& config) {
  if (config.ropes.empty()) return;
  const RopeConfig& rope = config.ropes.front();
  sheet.add("rope_style", rope.style);
  sheet.add("rope_dims", rope.dims);
  sheet.add("rope_theta", rope.theta);
  if (config.ropes.size() > 1) sheet.add("windowed_rope_theta", config.ropes[1].theta);
  sheet.add_text("layers_without_rope", layers_without_rope(config.layers));
  sheet.add("rope_file_factors", rope.file_factors);
  sheet.add("rope_scaling", rope.scaling.kind);
  if (rope.scaling.kind == RopeScalingKind::none) return;
  sheet.add("rope_scaling_factor", rope.scaling.factor);
  sheet.add("rope_attention_factor", rope.scaling.attention_factor);
  if (rope.scaling.kind == RopeScalingKind::linear) return;
  sheet.add("rope_original_context", rope.scaling.original_context);
  if (rope.scaling.kind == RopeScalingKind::longrope || rope.scaling.kind == RopeScalingKind::dynamic) {
    sheet.add("rope_context", rope.scaling.context);
    return sheet.add_text("rope_frequencies",
                          rope.scaling.is_beyond_original() ? "of long contexts" : "of the original context");
  }
  if (rope.scaling.kind == RopeScalingKind::wavelength) {
    sheet.add("rope_low_freq_factor", rope.scaling.low_freq_factor);
    sheet.add("rope_high_freq_factor", rope.scaling.high_freq_factor);
    return;
  }
  sheet.add("rope_extrapolation", rope.scaling.extrapolation);
  sheet.add("rope_mscale", rope.scaling.mscale);
  sheet.add("rope_mscale_all_dim", rope.scaling.mscale_all_dim);
  sheet.add("rope_truncated", rope.scaling.truncated);
  sheet.add("rope_beta_fast", rope.scaling.beta_fast);
  sheet.add("rope_beta_slow", rope.scaling.beta_slow);
}

void add_linear_attention(Sheet& sheet, const ModelConfig& config) {
  if (config.n_state_layers() == 0) return;
  const auto is_linear = [](const LayerConfig& layer) { return layer.state != kNoState; };
  sheet.add_text("linear_layers", layers_text(config.layers, is_linear));
  sheet.add("conv_taps", config.conv_taps);
  sheet.add("delta_key_heads", config.delta.n_key_heads);
  sheet.add("delta_value_heads", config.delta.n_value_heads);
  sheet.add("delta_key_dim", config.delta.key_dim);
  sheet.add("delta_value_dim", config.delta.value_dim);
}

void add_experts(Sheet& sheet, const ModelConfig& config) {
  sheet.add("n_experts", config.experts.n_experts);
  if (!config.has_experts()) return;
  sheet.add("n_experts_used", config.experts.n_used);
  sheet.add("expert_ffn_size", config.expert_ffn_size);
  sheet.add("expert_bias", config.expert_bias);
  sheet.add_text("expert_gate", config.clamped_silu ? "silu with limits" : "activation");
  if (config.clamped_silu) {
    sheet.add("gate_limit", config.clamped_silu->limit);
    sheet.add("gate_slope", config.clamped_silu->slope);
  }
  sheet.add("expert_weights_normalized", config.experts.normalized);
  sheet.add("expert_weights_scale", config.experts.scale);
  if (config.dense_beside_experts) sheet.add("dense_beside_experts", config.dense_beside_experts);
  sheet.add("shared_ffn_size", config.shared_ffn_size);
  if (config.shared_ffn_size > 0) sheet.add("shared_is_gated", config.shared_is_gated);
  sheet.add_text("layers_without_experts", layers_without_experts(config.layers));
}

}  // namespace

std::vector<Fact> describe(const ModelConfig& config, const Origins& origins) {
  Sheet sheet(origins);
  add_sizes(sheet, config);
  sheet.add("embedding_scale", config.embedding_scale);
  add_text_facts(sheet, config);
  if (config.layer_embedding.size > 0) sheet.add("layer_embedding_size", config.layer_embedding.size);
  if (config.n_deepstack_layers > 0) sheet.add("n_deepstack_layers", config.n_deepstack_layers);
  sheet.add("tied_head", config.tied_head);
  sheet.add("logit_scale", config.logit_scale);
  sheet.add("logit_soft_cap", config.logit_soft_cap);
  sheet.add_text("norm_kind", config.norm_kind == NormKind::rms ? "rms" : "layer");
  sheet.add("norm_bias", config.norm_bias);
  sheet.add("norm_epsilon", config.norm_epsilon);
  sheet.add("norm_placement", config.norm_placement);
  sheet.add("qk_norm", config.qk_norm);
  if (config.value_norm) sheet.add("value_norm", config.value_norm);
  sheet.add("residual_scale", config.residual_scale);
  sheet.add("parallel_blocks", config.parallel_blocks);
  sheet.add("qkv_bias", config.qkv_bias);
  sheet.add("output_bias", config.output_bias);
  sheet.add("attention_scale", config.attention_scale);
  sheet.add("attention_soft_cap", config.attention_soft_cap);
  sheet.add("attention_sinks", config.attention_sinks);
  sheet.add("query_scale_growth", config.query_scale.growth);
  if (config.query_scale.growth != 0) sheet.add("query_scale_period", config.query_scale.period);
  add_ropes(sheet, config);
  sheet.add_text("windows", windows_text(config.layers));
  if (const std::string layers = layers_text_of(config, &LayerConfig::shares_kv); !layers.empty()) {
    sheet.add_text("layers_that_share_kv", layers);
  }
  if (const std::string layers = layers_text_of(config, &LayerConfig::values_are_keys); !layers.empty()) {
    sheet.add_text("layers_with_values_from_keys", layers);
  }
  if (config.output_gate) sheet.add("output_gate", config.output_gate);
  add_linear_attention(sheet, config);
  if (config.plain_activation) {
    sheet.add("activation", *config.plain_activation);
  } else {
    sheet.add("activation", config.activation);
  }
  sheet.add("ffn_has_gate", !config.plain_activation.has_value());
  sheet.add("ffn_bias", config.ffn_bias);
  add_experts(sheet, config);
  sheet.add("kv_dtype", config.kv_types);
  if (!config.kv_ranges.empty()) {
    sheet.add_text("kv_layers", kv_layers_text(config.kv_types_by_layer(config.kv_types)));
  }
  sheet.add("suppressed_tokens", config.suppressed_tokens);
  return std::move(sheet).take();
}

}  // namespace imp
