// Attention over the KV cache.
#include <array>
#include <cstddef>
#include <span>

#include "model/decoder.h"

namespace imp {
namespace {

// Of layers without RoPE.
const Rope kUnrotated;

}  // namespace

// A layer that shares keys and values has no k and v of its own.
void Decoder::project_qkv(const LayerWeights& w, const LayerConfig& layer) {
  const std::array terms = {LinearTerm{w.q.get(), w.q_bias.get(), q_}, LinearTerm{w.k.get(), w.k_bias.get(), k_},
                            LinearTerm{w.v.get(), w.v_bias.get(), v_},
                            LinearTerm{w.output_gate.get(), nullptr, output_gate_}};
  if (layer.shares_kv) return backend_.linear(layer_input(), std::span(terms).first(1));
  if (layer.values_are_keys) {
    backend_.linear(layer_input(), std::span(terms).first(2));
  } else {
    backend_.linear(layer_input(), std::span(terms).first(config_.output_gate ? 4 : 3));
  }
  if (config_.value_norm) backend_.norm_heads(layer.values_are_keys ? k_ : v_, layer.head_dim, norm(Values{}), v_);
}

// A layer without RoPE rotates nothing.
void Decoder::rotate_and_append(const Batch& batch, KvPool& pool, int i, const LayerWeights& w) {
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  const auto at = static_cast<std::size_t>(layer.rope);
  const Rope& rope = layer.rope == kNoRope ? kUnrotated : ropes_[at];
  const Rows angles = layer.rope == kNoRope ? Rows{} : angles_[at];
  const Norm q_norm = norm(w.q_norm), k_norm = norm(w.k_norm);
  if (layer.shares_kv) return backend_.rope(q_, layer.head_dim, q_norm, rope, angles);
  const auto append = [&](const Rope& rotation, const Norm& of_q, const Norm& of_k) {
    backend_.rope_append(pool, layer.kv, batch.sequences, layer.head_dim, rotation, angles, {q_, of_q}, {k_, of_k}, v_);
  };
  switch (config_.qk_norm) {
    case QkNorm::none:
    case QkNorm::head:
      return append(rope, q_norm, k_norm);
    case QkNorm::width:
      backend_.rms_norm(q_, q_norm, q_);
      backend_.rms_norm(k_, k_norm, k_);
      return append(rope, {}, {});
    case QkNorm::layer:
      backend_.layer_norm(q_, layer.head_dim, q_norm, q_);
      backend_.layer_norm(k_, layer.head_dim, k_norm, k_);
      return append(rope, {}, {});
    case QkNorm::rotated_head:
      backend_.rope(q_, layer.head_dim, {}, rope, angles);
      backend_.rope(k_, layer.head_dim, {}, rope, angles);
      return append(kUnrotated, q_norm, k_norm);
  }
}

void Decoder::attention(const Batch& batch, KvPool& pool, int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  project_qkv(w, layer);
  rotate_and_append(batch, pool, i, w);
  if (config_.query_scale.growth != 0) backend_.scale_by_position(q_, batch.positions, config_.query_scale);
  AttentionParams params = attention_params(config_, layer);
  params.sinks = w.sinks.get();
  if (watch_ != nullptr) watch_layer(batch, pool, layer.kv, params);
  backend_.attend(pool, layer.kv, batch.sequences, params, q_, attended_);
  if (config_.output_gate) backend_.multiply_sigmoid(attended_, output_gate_);
  backend_.linear(attended_, std::array{LinearTerm{w.output.get(), w.output_bias.get(), branch_}});
  finish_attention(w, i);
}

void Decoder::watch_layer(const Batch& batch, const KvPool& pool, int layer, const AttentionParams& params) {
  IMP_CHECK(batch.sequences.size() == 1);
  const SequenceRows& sequence = batch.sequences.front();
  const int first_seen = params.window > 0 ? sequence.first_position - params.window + 1 : 0;
  if (first_seen > watch_->first_key) return;
  backend_.attention_mass(pool, layer, sequence, params, q_, watch_->first_key, watch_->mass);
  ++watch_->n_layers;
}

void Decoder::finish_attention(const LayerWeights& w, int i) {
  finish_branch(w.post_attention_norm);
  if (config_.parallel_blocks) return backend_.add(x_, branch_);
  const LayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
  add_branch(1, &w.ffn_norm, feed_forward_.first_product(w, layer));
}

}  // namespace imp
