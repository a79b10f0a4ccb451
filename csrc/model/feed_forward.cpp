// Dense products, and the routing and mixing of experts.
#include "model/feed_forward.h"

#include <array>
#include <cstddef>

#include "model/normalize.h"
#include "model/row_views.h"

namespace imp {
namespace {

// Rows that all experts together process for so many rows of a batch.
int grouped_rows(const ModelConfig& config, int rows) {
  return rows * config.experts.n_used;
}

}  // namespace

FeedForward::FeedForward(const ModelConfig& config, Backend& backend, int max_rows)
    : config_(config), backend_(backend) {
  if (config.has_dense_layers()) gate_ = backend.make_rows(max_rows, config.max_of(&LayerConfig::ffn_size));
  if (config.has_experts()) {
    const int grouped = grouped_rows(config, max_rows);
    expert_gate_ = backend.make_rows(grouped, config.expert_ffn_size);
    expert_up_ = backend.make_rows(grouped, config.expert_ffn_size);
    scores_ = backend.make_rows(max_rows, config.experts.n_experts);
    routed_ = backend.make_expert_rows(max_rows, config.experts);
    grouped_ = backend.make_rows(grouped, config.hidden_size);
  }
  if (config.shared_ffn_size > 0) {
    if (config.shared_is_gated) shared_score_ = backend.make_rows(max_rows, 1);
    shared_gate_ = backend.make_rows(max_rows, config.shared_ffn_size);
    shared_ = backend.make_rows(max_rows, config.hidden_size);
  }
  if (config.dense_beside_experts) expert_branch_ = backend.make_rows(max_rows, config.hidden_size);
}

std::uint64_t feed_forward_bytes(const ModelConfig& config, int max_rows) {
  std::uint64_t total = 0;
  if (config.has_dense_layers()) total += bytes_of_rows(max_rows, config.max_of(&LayerConfig::ffn_size));
  if (config.has_experts()) {
    const int grouped = grouped_rows(config, max_rows);
    total += 2 * bytes_of_rows(grouped, config.expert_ffn_size) + bytes_of_rows(max_rows, config.experts.n_experts) +
             bytes_of_rows(grouped, config.hidden_size) + expert_rows_bytes(max_rows, config.experts);
  }
  if (config.shared_ffn_size > 0) {
    total += bytes_of_rows(max_rows, config.shared_ffn_size) + bytes_of_rows(max_rows, config.hidden_size);
    if (config.shared_is_gated) total += bytes_of_rows(max_rows, 1);
  }
  if (config.dense_beside_experts) total += bytes_of_rows(max_rows, config.hidden_size);
  return total;
}

const Linear* FeedForward::first_product(const LayerWeights& w, const LayerConfig& layer) const noexcept {
  if (layer.has_experts && !config_.dense_beside_experts) return w.router.get();
  return config_.plain_activation ? w.up.get() : w.gate.get();
}

void FeedForward::run(const LayerWeights& w, const LayerConfig& layer, Rows stream, Rows input, Rows out) {
  take_rows(input.n_rows);
  if (!layer.has_experts) return dense(w, layer, input, out);
  config_.dense_beside_experts ? dense_and_experts(w, layer, stream, input, out) : experts(w, input, out);
}

void FeedForward::take_rows(int n) {
  for (Rows* rows : {&gate_, &scores_, &shared_score_, &shared_gate_, &shared_, &expert_branch_}) rows->n_rows = n;
  for (Rows* rows : {&expert_gate_, &expert_up_, &grouped_}) rows->n_rows = grouped_rows(config_, n);
  routed_.n_rows = n;
}

void FeedForward::dense(const LayerWeights& w, const LayerConfig& layer, Rows input, Rows out) {
  const Rows gate = columns(gate_, 0, layer.ffn_size);
  if (config_.plain_activation) {
    backend_.linear(input, std::array{LinearTerm{w.up.get(), w.up_bias.get(), gate}});
    backend_.activate(*config_.plain_activation, layer.xielu, gate);
  } else {
    backend_.gated_linear(input, {w.gate.get(), w.gate_bias.get(), w.up.get(), w.up_bias.get(), gate},
                          config_.activation);
  }
  backend_.linear(gate, std::array{LinearTerm{w.down.get(), w.down_bias.get(), out}});
}

// The shared expert needs no routing. It is computed together with the router, which reads the same input.
void FeedForward::route(const LayerWeights& w, Rows input) {
  const LinearTerm router{w.router.get(), w.router_bias.get(), scores_};
  if (config_.shared_ffn_size > 0 && config_.shared_is_gated) {
    backend_.linear(input, std::array{router, LinearTerm{w.shared_router.get(), nullptr, shared_score_}});
  } else {
    backend_.linear(input, std::array{router});
  }
  if (config_.shared_ffn_size > 0) {
    backend_.gated_linear(input, {w.shared_gate.get(), nullptr, w.shared_up.get(), nullptr, shared_gate_},
                          config_.activation);
    backend_.linear(shared_gate_, std::array{LinearTerm{w.shared_down.get(), nullptr, shared_}});
  }
  backend_.route_experts(scores_, config_.experts, routed_);
  if (config_.has_expert_scales) backend_.scale_experts(routed_, *w.expert_scales);
}

void FeedForward::experts(const LayerWeights& w, Rows input, Rows out) {
  route(w, input);
  mix_experts(w, input, out);
  if (config_.shared_ffn_size == 0) return;
  config_.shared_is_gated ? backend_.add_gated(out, shared_, shared_score_) : backend_.add(out, shared_);
}

void FeedForward::dense_and_experts(const LayerWeights& w, const LayerConfig& layer, Rows stream, Rows input,
                                    Rows out) {
  dense(w, layer, input, out);
  normalize(backend_, config_, out, w.post_dense_norm, nullptr, out);
  normalize(backend_, config_, stream, w.router_norm, w.router.get(), input);
  route(w, input);
  normalize(backend_, config_, stream, w.expert_norm, w.expert_gates.front().get(), input);
  mix_experts(w, input, expert_branch_);
  normalize(backend_, config_, expert_branch_, w.post_expert_norm, nullptr, expert_branch_);
  backend_.add(out, expert_branch_);
}

void FeedForward::mix_experts(const LayerWeights& w, Rows input, Rows out) {
  backend_.expert_linear_in(input, routed_,
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
