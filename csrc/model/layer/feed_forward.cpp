// Dense products, and the routing and mixing of experts.
#include "model/layer/feed_forward.h"

#include <algorithm>
#include <array>

#include "model/layer/clipped_product.h"
#include "model/layer/normalize.h"
#include "model/layer/row_views.h"

namespace imp {

void FeedForwardRows::declare(const ModelConfig& config, Workspace& workspace) {
  if (config.has_dense_layers()) workspace.add(gate, config.max_of(&LayerConfig::ffn_size));
  if (config.has_clips()) {
    const int ffn = config.max_of(&LayerConfig::ffn_size);
    const int heads = config.n_heads * config.max_of(&LayerConfig::head_dim);
    workspace.add(up, ffn);
    workspace.add(bounded, std::max({config.hidden_size, heads, ffn}));
  }
  if (config.has_experts()) {
    const int n_used = config.experts.n_used;
    workspace.add(expert_gate, config.expert_ffn_size, n_used);
    workspace.add(expert_up, config.expert_ffn_size, n_used);
    workspace.add(scores, config.experts.n_experts);
    workspace.add(routed, config.experts);
    workspace.add(grouped, config.hidden_size, n_used);
  }
  if (config.shared_ffn_size > 0) {
    if (config.shared_is_gated) workspace.add(shared_score, 1);
    workspace.add(shared_gate, config.shared_ffn_size);
    workspace.add(shared, config.hidden_size);
  }
  if (config.dense_beside_experts) workspace.add(expert_branch, config.hidden_size);
}

const Linear* FeedForward::first_product(const Layer& layer) const noexcept {
  const LayerWeights& w = layer.weights;
  if (layer.config.clips) return nullptr;
  if (layer.config.has_experts && !config_.dense_beside_experts) return w.router.get();
  return config_.plain_activation ? w.up.get() : w.gate.get();
}

void FeedForward::run(const Layer& layer, Rows stream, Rows input, Rows out) {
  if (!layer.config.has_experts) return dense(layer, input, out);
  config_.dense_beside_experts ? dense_and_experts(layer, stream, input, out) : experts(layer.weights, input, out);
}

void FeedForward::dense(const Layer& layer, Rows input, Rows out) {
  const LayerWeights& w = layer.weights;
  if (layer.config.clips) return clipped_dense(layer, *layer.config.clips, input, out);
  const Rows gate = columns(rows_.gate, 0, layer.config.ffn_size);
  if (config_.plain_activation) {
    backend_.linear(input, std::array{LinearTerm{w.up.get(), w.up_bias.get(), gate}});
    backend_.activate(*config_.plain_activation, layer.config.xielu, gate);
  } else {
    backend_.gated_linear(input, {w.gate.get(), w.gate_bias.get(), w.up.get(), w.up_bias.get(), gate},
                          config_.activation);
  }
  backend_.linear(gate, std::array{LinearTerm{w.down.get(), w.down_bias.get(), out}});
}

void FeedForward::clipped_dense(const Layer& layer, const LayerClips& clips, Rows input, Rows out) {
  const LayerWeights& w = layer.weights;
  const Rows gate = columns(rows_.gate, 0, layer.config.ffn_size), up = columns(rows_.up, 0, layer.config.ffn_size);
  clipped_linear(backend_, input, {w.gate.get(), w.gate_bias.get(), gate}, clips.gate, rows_.bounded);
  clipped_linear(backend_, input, {w.up.get(), w.up_bias.get(), up}, clips.up, rows_.bounded);
  backend_.gated_activation(config_.activation, gate, up, gate);
  clipped_linear(backend_, gate, {w.down.get(), w.down_bias.get(), out}, clips.down, rows_.bounded);
}

// The shared expert needs no routing. It is computed together with the router, which reads the same input.
void FeedForward::route(const LayerWeights& w, Rows input) {
  const LinearTerm router{w.router.get(), w.router_bias.get(), rows_.scores};
  if (config_.shared_ffn_size > 0 && config_.shared_is_gated) {
    backend_.linear(input, std::array{router, LinearTerm{w.shared_router.get(), nullptr, rows_.shared_score}});
  } else {
    backend_.linear(input, std::array{router});
  }
  if (config_.shared_ffn_size > 0) {
    backend_.gated_linear(input, {w.shared_gate.get(), nullptr, w.shared_up.get(), nullptr, rows_.shared_gate},
                          config_.activation);
    backend_.linear(rows_.shared_gate, std::array{LinearTerm{w.shared_down.get(), nullptr, rows_.shared}});
  }
  backend_.route_experts(rows_.scores, config_.experts, rows_.routed);
  if (config_.has_expert_scales) backend_.scale_experts(rows_.routed, *w.expert_scales);
}

void FeedForward::experts(const LayerWeights& w, Rows input, Rows out) {
  route(w, input);
  mix_experts(w, input, out);
  if (config_.shared_ffn_size == 0) return;
  config_.shared_is_gated ? backend_.add_gated(out, rows_.shared, rows_.shared_score) : backend_.add(out, rows_.shared);
}

void FeedForward::dense_and_experts(const Layer& layer, Rows stream, Rows input, Rows out) {
  const LayerWeights& w = layer.weights;
  dense(layer, input, out);
  normalize(backend_, config_, out, w.post_dense_norm, nullptr, out);
  normalize(backend_, config_, stream, w.router_norm, w.router.get(), input);
  route(w, input);
  normalize(backend_, config_, stream, w.expert_norm, w.expert_gates.front().get(), input);
  mix_experts(w, input, rows_.expert_branch);
  normalize(backend_, config_, rows_.expert_branch, w.post_expert_norm, nullptr, rows_.expert_branch);
  backend_.add(out, rows_.expert_branch);
}

void FeedForward::mix_experts(const LayerWeights& w, Rows input, Rows out) {
  backend_.expert_linear_in(input, rows_.routed,
                            std::array{ExpertTerm{w.expert_gates, rows_.expert_gate, w.expert_gate_biases.get()},
                                       ExpertTerm{w.expert_ups, rows_.expert_up, w.expert_up_biases.get()}});
  if (config_.clamped_silu) {
    backend_.clamped_activation(*config_.clamped_silu, rows_.expert_gate, rows_.expert_up, rows_.expert_gate);
  } else {
    backend_.gated_activation(config_.activation, rows_.expert_gate, rows_.expert_up, rows_.expert_gate);
  }
  backend_.expert_linear_out(rows_.expert_gate, rows_.routed,
                             {w.expert_downs, rows_.grouped, w.expert_down_biases.get()});
  backend_.mix_experts(rows_.grouped, rows_.routed, out);
}

}  // namespace imp
