// The feed-forward of a layer: dense, experts, or both.
#include <array>
#include <cstddef>

#include "model/decoder.h"

namespace imp {
const Linear* Decoder::first_of_feed_forward(int i) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const bool has_experts = config_.layers[static_cast<std::size_t>(i)].has_experts;
  if (has_experts && !config_.dense_beside_experts) return w.router.get();
  return config_.plain_activation ? w.up.get() : w.gate.get();
}

void Decoder::feed_forward(int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  if (!layer.has_experts) {
    dense(w, layer);
  } else {
    config_.dense_beside_experts ? dense_and_experts(w, layer) : experts(w, branch_);
  }
  finish_branch(w.post_ffn_norm);
}

void Decoder::dense(const LayerWeights& w, const LayerConfig& layer) {
  if (config_.plain_activation) {
    backend_.linear(layer_input(), std::array{LinearTerm{w.up.get(), w.up_bias.get(), gate_}});
    backend_.activate(*config_.plain_activation, layer.xielu, gate_);
  } else {
    backend_.gated_linear(layer_input(), {w.gate.get(), w.gate_bias.get(), w.up.get(), w.up_bias.get(), gate_},
                          config_.activation);
  }
  backend_.linear(gate_, std::array{LinearTerm{w.down.get(), w.down_bias.get(), branch_}});
}

// The shared expert needs no routing. It is computed together with the router, which reads the same input.
void Decoder::route(const LayerWeights& w) {
  const LinearTerm router{w.router.get(), w.router_bias.get(), scores_};
  if (config_.shared_ffn_size > 0 && config_.shared_is_gated) {
    backend_.linear(layer_input(), std::array{router, LinearTerm{w.shared_router.get(), nullptr, shared_score_}});
  } else {
    backend_.linear(layer_input(), std::array{router});
  }
  if (config_.shared_ffn_size > 0) {
    backend_.gated_linear(layer_input(), {w.shared_gate.get(), nullptr, w.shared_up.get(), nullptr, shared_gate_},
                          config_.activation);
    backend_.linear(shared_gate_, std::array{LinearTerm{w.shared_down.get(), nullptr, shared_}});
  }
  backend_.route_experts(scores_, config_.experts, routed_);
  if (config_.has_expert_scales) backend_.scale_experts(routed_, *w.expert_scales);
}

void Decoder::experts(const LayerWeights& w, Rows out) {
  route(w);
  mix_experts(w, out);
  if (config_.shared_ffn_size == 0) return;
  config_.shared_is_gated ? backend_.add_gated(out, shared_, shared_score_) : backend_.add(out, shared_);
}

void Decoder::dense_and_experts(const LayerWeights& w, const LayerConfig& layer) {
  dense(w, layer);
  normalize(branch_, w.post_dense_norm, nullptr, branch_);
  normalize(x_, w.router_norm, w.router.get(), normed_);
  route(w);
  normalize(x_, w.expert_norm, w.expert_gates.front().get(), normed_);
  mix_experts(w, expert_branch_);
  normalize(expert_branch_, w.post_expert_norm, nullptr, expert_branch_);
  backend_.add(branch_, expert_branch_);
}

void Decoder::mix_experts(const LayerWeights& w, Rows out) {
  backend_.expert_linear_in(layer_input(), routed_,
                            std::array{ExpertTerm{w.expert_gates, expert_gate_, w.expert_gate_biases.get()},
                                       ExpertTerm{w.expert_ups, expert_up_, w.expert_up_biases.get()}});
  if (config_.clamped_silu) {
    backend_.clamped_activation(*config_.clamped_silu, expert_gate_, expert_up_, expert_gate_);
  } else {
    backend_.gated_activation(config_.activation, expert_gate_, expert_up_, expert_gate_);
  }
  backend_.expert_linear_out(expert_gate_, routed_, {w.expert_downs, grouped_, w.expert_down_biases.get()});
  backend_.mix_experts(grouped_, routed_, out);
}

}  // namespace imp
