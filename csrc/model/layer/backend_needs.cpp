#include "model/layer/backend_needs.h"

#include <algorithm>
#include <vector>

#include "model/layer/layer_body.h"

namespace imp {
namespace {

// The ops in use that a backend may lack.
std::vector<Op> special_ops(const ModelConfig& config, const ForwardLimits& limits) {
  std::vector<Op> ops;
  const auto add = [&](bool is_used, Op op) {
    if (is_used) ops.push_back(op);
  };
  const auto has_planes = [](const RopeConfig& rope) { return !rope.planes.empty(); };
  const auto is_scaled = [](const LayerConfig& layer) { return layer.output_scale != 1; };
  add(config.value_norm || config.layer_embedding.size > 0, Op::norm_heads);
  add(config.has_expert_scales, Op::scale_experts);
  add(config.residual_scale != 1 || config.logit_scale != 1 || std::ranges::any_of(config.layers, is_scaled),
      Op::scale);
  add(config.norm_kind == NormKind::layer || config.qk_norm == QkNorm::layer, Op::layer_norm);
  const auto is_bent = [](const Projection& projection) { return projection.activation.has_value(); };
  add(config.plain_activation || config.score_head || std::ranges::any_of(config.projections, is_bent), Op::activate);
  add(config.has_clips(), Op::clamp);
  add(config.query_scale.growth != 0, Op::scale_by_position);
  add(config.attention_sinks, Op::attend_sinks);
  add(limits.is_watched, Op::attention_mass);
  add((limits.takes_media || config.is_two_sided) && config.max_of(&LayerConfig::ahead) > 0, Op::attend_ahead);
  add(config.pooling != Pooling::none, Op::mean_rows);
  add(limits.takes_media && std::ranges::any_of(config.ropes, has_planes), Op::rope_planes);
  add(config.expert_bias, Op::expert_biases);
  add(config.clamped_silu.has_value(), Op::clamped_activation);
  const bool is_linear = config.n_state_layers() > 0;
  for (const Op op : {Op::delta_rule, Op::short_conv, Op::rms_norm_gated}) add(is_linear, op);
  add(config.output_gate, Op::multiply_sigmoid);
  return ops;
}

// The greatest of each size, over all layers.
AttentionParams widest_attention(const ModelConfig& config) {
  AttentionParams widest = attention_params(config, config.layers.front());
  widest.n_kv_heads = config.max_of(&LayerConfig::n_kv_heads);
  widest.head_dim = config.max_of(&LayerConfig::head_dim);
  return widest;
}

}  // namespace

WorkspaceNeeds workspace_needs(const ModelConfig& config, const ForwardLimits& limits) {
  return {.max_rows = limits.max_rows,
          .max_logits_rows = limits.max_logits_rows,
          .max_sequences = std::min(limits.max_rows, limits.max_logits_rows),
          .vocab_size = config.n_logits(),
          .max_context = config.max_context,
          .ops = special_ops(config, limits),
          .attention = widest_attention(config),
          .weights = {},
          .experts = config.experts};
}

void add_matrices(const LayerWeights& w, WorkspaceNeeds& needs) {
  for (const Matrix* weight :
       {&w.q, &w.k, &w.v, &w.output_gate, &w.alpha, &w.beta, &w.output, &w.gate, &w.up, &w.down, &w.router,
        &w.shared_router, &w.shared_gate, &w.shared_up, &w.shared_down, &w.embedding_gate, &w.embedding_output}) {
    if (*weight) needs.weights.push_back(weight->get());
  }
  for (const Stack* stack : {&w.expert_gates, &w.expert_ups, &w.expert_downs}) {
    for (const Matrix& weight : *stack) needs.expert_weights.push_back(weight.get());
  }
}

}  // namespace imp
