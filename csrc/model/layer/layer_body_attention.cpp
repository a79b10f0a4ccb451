// Attention over the KV cache.
#include <array>
#include <cstddef>
#include <span>

#include "base/error.h"
#include "model/layer/clipped_product.h"
#include "model/layer/layer_body.h"

namespace imp {
namespace {

// Of layers without RoPE.
const Rope kUnrotated;

}  // namespace

AttentionParams attention_params(const ModelConfig& config, const LayerConfig& layer) {
  return {.n_heads = config.n_heads,
          .n_kv_heads = layer.n_kv_heads,
          .head_dim = layer.head_dim,
          .scale = config.attention_scale,
          .soft_cap = config.attention_soft_cap,
          .window = layer.window,
          .ahead = layer.ahead};
}

// A layer that shares keys and values has no k and v of its own.
void LayerBody::attention(const Layer& layer, const Batch& batch, KvPool& pool) {
  if (layer.config.shares_kv) {
    project_queries(layer, attention_input(layer.config));
  } else {
    project_and_append(layer, attention_input(layer.config), batch, pool);
  }
  attend(layer, batch, pool);
  finish_attention(layer);
}

void LayerBody::project_and_append(const Layer& layer, Rows input, const Batch& batch, KvPool& pool) {
  const LayerConfig& config = layer.config;
  project(layer, input, LayerParts::all);
  const Rotation q = begin_rotation(config, rows_.q, norm(layer.weights.q_norm));
  const Rotation k = begin_rotation(config, rows_.k, norm(layer.weights.k_norm));
  backend_.rope_append(pool, config.kv, batch.sequences, config.head_dim, q.rope, q.angles, {rows_.q, q.norm},
                       {rows_.k, k.norm}, rows_.v);
}

void LayerBody::append_keys(const Layer& layer, Rows input, const Batch& batch, KvPool& pool) {
  const LayerConfig& config = layer.config;
  project(layer, input, LayerParts::keys);
  const Rotation k = begin_rotation(config, rows_.k, norm(layer.weights.k_norm));
  backend_.rope(rows_.k, config.head_dim, k.norm, k.rope, k.angles);
  backend_.append_kv(pool, config.kv, batch.sequences, rows_.k, rows_.v);
}

void LayerBody::project_queries(const Layer& layer, Rows input) {
  project(layer, input, LayerParts::queries);
  const Rotation q = begin_rotation(layer.config, rows_.q, norm(layer.weights.q_norm));
  backend_.rope(rows_.q, layer.config.head_dim, q.norm, q.rope, q.angles);
}

void LayerBody::take_widths_of(const LayerConfig& layer) {
  rows_.q.width = rows_.attended.width = rows_.output_gate.width = config_.n_heads * layer.head_dim;
  rows_.k.width = rows_.v.width = layer.n_kv_heads * layer.head_dim;
}

void LayerBody::project(const Layer& layer, Rows input, LayerParts parts) {
  take_widths_of(layer.config);
  const LayerWeights& w = layer.weights;
  std::array<LinearTerm, 4> terms;
  std::size_t n_terms = 0;
  const auto add = [&](bool is_used, const Matrix& weight, const Vector* bias, Rows out, Clip LayerClips::* clip) {
    const LinearTerm term = {weight.get(), bias, out};
    if (!is_used) return;
    if (!layer.config.clips || clip == nullptr) {
      terms[n_terms++] = term;
    } else {
      clipped_linear(backend_, input, term, *layer.config.clips.*clip, rows_.feed_forward.bounded);
    }
  };
  add(has_queries(parts), w.q, w.q_bias.get(), rows_.q, &LayerClips::q);
  add(has_keys(parts), w.k, w.k_bias.get(), rows_.k, &LayerClips::k);
  add(has_keys(parts) && !layer.config.values_are_keys, w.v, w.v_bias.get(), rows_.v, &LayerClips::v);
  add(has_queries(parts) && config_.output_gate, w.output_gate, nullptr, rows_.output_gate, nullptr);
  backend_.linear(input, std::span(terms).first(n_terms));
  if (!has_keys(parts) || !config_.value_norm) return;
  backend_.norm_heads(layer.config.values_are_keys ? rows_.k : rows_.v, layer.config.head_dim, norm(Values{}), rows_.v);
}

// Does what the op that rotates x cannot, and returns what is left for that op. A layer without RoPE rotates nothing.
LayerBody::Rotation LayerBody::begin_rotation(const LayerConfig& layer, Rows x, const Norm& of_heads) {
  const bool is_rotated = layer.rope != kNoRope;
  const auto at = static_cast<std::size_t>(layer.rope);
  const Rope& rope = is_rotated ? ropes_[at] : kUnrotated;
  const Rows angles = is_rotated ? rows_.angles[at] : Rows{};
  switch (config_.qk_norm) {
    case QkNorm::none:
    case QkNorm::head:
      return {rope, angles, of_heads};
    case QkNorm::width:
      backend_.rms_norm(x, of_heads, x);
      return {rope, angles, {}};
    case QkNorm::layer:
      backend_.layer_norm(x, layer.head_dim, of_heads, x);
      return {rope, angles, {}};
    case QkNorm::rotated_head:
      backend_.rope(x, layer.head_dim, {}, rope, angles);
      return {kUnrotated, angles, of_heads};
  }
  return {rope, angles, of_heads};
}

void LayerBody::attend(const Layer& layer, const Batch& batch, const KvPool& pool) {
  const LayerWeights& w = layer.weights;
  if (config_.query_scale.growth != 0) backend_.scale_by_position(rows_.q, batch.first_plane(), config_.query_scale);
  AttentionParams params = attention_params(config_, layer.config);
  params.sinks = w.sinks.get();
  if (watch_ != nullptr) watch_attention(layer.config, batch, pool, params);
  backend_.attend(pool, layer.config.kv, batch.sequences, params, rows_.q, rows_.attended);
  if (config_.output_gate) backend_.multiply_sigmoid(rows_.attended, rows_.output_gate);
  const LinearTerm output = {w.output.get(), w.output_bias.get(), rows_.branch};
  if (layer.config.clips) {
    clipped_linear(backend_, rows_.attended, output, layer.config.clips->output, rows_.feed_forward.bounded);
  } else {
    backend_.linear(rows_.attended, std::array{output});
  }
}

void LayerBody::watch_attention(const LayerConfig& layer, const Batch& batch, const KvPool& pool,
                                const AttentionParams& params) {
  IMP_CHECK(batch.sequences.size() == 1);
  const SequenceRows& sequence = batch.sequences.front();
  const int first_seen = params.window > 0 ? sequence.first_position - params.window + 1 : 0;
  if (first_seen > watch_->first_key) return;
  backend_.attention_mass(pool, layer.kv, sequence, params, rows_.q, watch_->first_key, watch_->mass);
  ++watch_->n_layers;
}

}  // namespace imp
