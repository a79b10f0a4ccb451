// Lists the tensors of a layer's feed-forward block: dense, experts, or both.
#include <cmath>

#include "model/weights/layer_specs.h"

namespace imp {

// The experts' matrices of one kind: one tensor with all of them, or one tensor for each.
void LayerSpecs::add_expert_matrices(std::string_view name, std::int64_t n, std::int64_t k, Stack& slot) {
  const int n_experts = config_.experts.n_experts;
  if (names_.experts.empty()) return specs_.experts(names_.stack(i_, name), n, k, n_experts, slot);
  slot.resize(static_cast<std::size_t>(n_experts));
  for (int expert = 0; expert < n_experts; ++expert) {
    specs_.expert(names_.expert_weight(i_, expert, name), n, k, slot[static_cast<std::size_t>(expert)]);
  }
}

void LayerSpecs::add_shared_expert() {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t shared = config_.shared_ffn_size;
  const bool fused = !names_.shared_gate_up.empty();
  const auto tensor = [&](std::string_view name) { return names_.weight(i_, fused ? names_.shared_gate_up : name); };
  if (config_.shared_is_gated) specs_.matrix(names_.weight(i_, names_.shared_router), 1, hidden, layer_.shared_router);
  specs_.matrix(tensor(names_.shared_gate), shared, hidden, layer_.shared_gate);
  specs_.matrix(tensor(names_.shared_up), shared, hidden, layer_.shared_up);
  if (fused) specs_.stack_last(2);
  specs_.matrix(names_.weight(i_, names_.shared_down), hidden, shared, layer_.shared_down);
}

void LayerSpecs::add_expert_biases() {
  const int n_experts = config_.experts.n_experts;
  const bool has_optional =
      !names_.optional_expert_gate_up.empty() && specs_.has(names_.stack_bias(i_, names_.optional_expert_gate_up));
  const std::string_view fused = has_optional ? names_.optional_expert_gate_up : names_.expert_gate_up;
  const auto tensor = [&](std::string_view name) { return names_.stack_bias(i_, fused.empty() ? name : fused); };
  specs_.bias(names_.bias(i_, names_.router), n_experts, layer_.router_bias);
  specs_.biases(tensor(names_.expert_gate), config_.expert_ffn_size, n_experts, layer_.expert_gate_biases);
  specs_.biases(tensor(names_.expert_up), config_.expert_ffn_size, n_experts, layer_.expert_up_biases);
  if (!fused.empty()) specs_.join_gate_and_up();
  specs_.biases(names_.stack_bias(i_, names_.expert_down), config_.hidden_size, n_experts, layer_.expert_down_biases);
}

void LayerSpecs::add_experts() {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t ffn = config_.expert_ffn_size;
  const bool has_optional =
      !names_.optional_expert_gate_up.empty() && specs_.has(names_.stack(i_, names_.optional_expert_gate_up));
  const std::string_view fused = has_optional ? names_.optional_expert_gate_up : names_.expert_gate_up;
  specs_.matrix(names_.weight(i_, names_.router), config_.experts.n_experts, hidden, layer_.router);
  add_expert_matrices(fused.empty() ? names_.expert_gate : fused, ffn, hidden, layer_.expert_gates);
  add_expert_matrices(fused.empty() ? names_.expert_up : fused, ffn, hidden, layer_.expert_ups);
  if (!fused.empty()) specs_.join_gate_and_up();
  add_expert_matrices(names_.expert_down, hidden, ffn, layer_.expert_downs);
  if (config_.has_expert_scales) {
    specs_.values(names_.in_layer(i_, names_.expert_scales), config_.experts.n_experts, layer_.expert_scales);
  }
  if (config_.expert_bias) add_expert_biases();
  if (config_.shared_ffn_size > 0) add_shared_expert();
}

void LayerSpecs::add_gate_and_up() {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t ffn = shape_.ffn_size;
  if (config_.plain_activation) return specs_.matrix(names_.weight(i_, names_.up), ffn, hidden, layer_.up);
  const bool fused = !names_.gate_up.empty();
  specs_.matrix(names_.weight(i_, fused ? names_.gate_up : names_.gate), ffn, hidden, layer_.gate);
  specs_.matrix(names_.weight(i_, fused ? names_.gate_up : names_.up), ffn, hidden, layer_.up);
  if (fused) specs_.stack_last(2);
}

void LayerSpecs::add_dense() {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t ffn = shape_.ffn_size;
  add_gate_and_up();
  specs_.matrix(names_.weight(i_, names_.down), hidden, ffn, layer_.down);
  if (!config_.ffn_bias) return;
  if (!config_.plain_activation) specs_.bias(names_.bias(i_, names_.gate), ffn, layer_.gate_bias);
  specs_.bias(names_.bias(i_, names_.up), ffn, layer_.up_bias);
  specs_.bias(names_.bias(i_, names_.down), hidden, layer_.down_bias);
}

// The router multiplies its norm by hidden^(-1/2), which the weights of that norm hold.
void LayerSpecs::add_dense_beside_experts() {
  add_dense();
  specs_.stream_norm(i_, names_.post_dense_norm, layer_.post_dense_norm);
  const float factor = 1 / std::sqrt(static_cast<float>(config_.hidden_size));
  specs_.values(names_.in_layer(i_, names_.router_norm), config_.hidden_size, layer_.router_norm.weight).factor =
      factor;
  specs_.stream_norm(i_, names_.expert_norm, layer_.expert_norm);
  specs_.stream_norm(i_, names_.post_expert_norm, layer_.post_expert_norm);
}

void LayerSpecs::add_feed_forward() {
  const bool has_norm = config_.norms_inputs() && !config_.parallel_blocks;
  if (has_norm) specs_.stream_norm(i_, names_.ffn_norm, layer_.ffn_norm);
  const bool has_experts = shape_.has_experts;
  if (has_experts && config_.dense_beside_experts) add_dense_beside_experts();
  has_experts ? add_experts() : add_dense();
  if (config_.norm_placement != NormPlacement::pre) specs_.stream_norm(i_, names_.post_ffn_norm, layer_.post_ffn_norm);
}

}  // namespace imp
