// Lists the tensors of a draft head.
#include "model/head_plan.h"

#include <cstddef>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "model/weights.h"

namespace imp {
namespace {

std::vector<WeightPlace> head_places(const HeadConfig& config, HeadWeights& weights) {
  const HeadTensors& names = config.tensors;
  const ModelConfig& sizes = config.layer;
  const std::int64_t hidden = sizes.hidden_size, ffn = sizes.ffn_size;
  const std::int64_t q_width = std::int64_t{sizes.n_heads} * sizes.head_dim;
  const std::int64_t kv_width = std::int64_t{sizes.n_kv_heads} * sizes.head_dim;
  const std::int64_t attention = config.attention_width();
  std::vector<WeightPlace> places;
  const auto matrix = [&](const std::string& name, std::int64_t n, std::int64_t k, Matrix& slot,
                          WeightUse use = WeightUse::product) {
    if (!name.empty()) places.push_back({.tensor = name, .use = use, .n = n, .k = k, .slot = &slot});
  };
  const auto vector = [&](const std::string& name, std::int64_t n, Values& slot) {
    if (!name.empty()) places.push_back({.tensor = name, .use = WeightUse::vector, .n = n, .k = 1, .slot = &slot});
  };
  matrix(names.embedding, config.embedding_rows, hidden, weights.embedding, WeightUse::lookup);
  vector(names.embedding_norm, hidden, weights.embedding_norm);
  vector(names.hidden_norm, hidden, weights.hidden_norm);
  vector(names.tap_norm, config.hidden_width(), weights.tap_norm);
  matrix(names.fuse, hidden, config.taps.empty() ? 2 * hidden : config.hidden_width(), weights.fuse);
  LayerWeights& layer = weights.layer;
  vector(names.attention_norm, hidden, layer.attention_norm.weight);
  matrix(names.q, q_width, attention, layer.q);
  matrix(names.k, kv_width, attention, layer.k);
  matrix(names.v, kv_width, attention, layer.v);
  vector(names.q_bias, q_width, layer.q_bias);
  vector(names.k_bias, kv_width, layer.k_bias);
  vector(names.v_bias, kv_width, layer.v_bias);
  vector(names.q_norm, sizes.head_dim, layer.q_norm);
  vector(names.k_norm, sizes.head_dim, layer.k_norm);
  matrix(names.output, hidden, q_width, layer.output);
  vector(names.ffn_norm, hidden, layer.ffn_norm.weight);
  matrix(names.gate, ffn, hidden, layer.gate);
  matrix(names.up, ffn, hidden, layer.up);
  matrix(names.down, hidden, ffn, layer.down);
  vector(names.final_norm, hidden, weights.final_norm);
  matrix(names.head, sizes.vocab_size, hidden, weights.head, WeightUse::head);
  return places;
}

// The offsets from a row of the head to its token. No token has two rows.
std::vector<std::int32_t> read_token_ids(const ModelFile& file, const HeadConfig& config, int n_target_tokens) {
  const std::string& name = config.tensors.ids;
  if (name.empty()) return {};
  const TensorInfo* tensor = file.find(name);
  const auto n_rows = static_cast<std::size_t>(config.layer.vocab_size);
  const std::string expected = std::to_string(n_rows) + " integers of 64 bits";
  if (tensor == nullptr) refuse_tensor(file, name, "missing", expected);
  if (tensor->integer_bytes != sizeof(std::int64_t) || tensor->n_elements() != static_cast<std::int64_t>(n_rows)) {
    refuse_tensor(file, name, std::to_string(tensor->n_bytes) + " bytes of shape " + shape_text(*tensor), expected);
  }
  std::vector<std::int64_t> offsets(n_rows);
  file.read(*tensor, 0, std::as_writable_bytes(std::span(offsets)));
  std::vector<std::int32_t> ids(n_rows);
  std::vector<bool> is_taken(static_cast<std::size_t>(n_target_tokens));
  for (std::size_t i = 0; i < n_rows; ++i) {
    const std::string element = "element " + std::to_string(i) + " is " + std::to_string(offsets[i]);
    const auto row = static_cast<std::int64_t>(i);
    if (offsets[i] < -row || offsets[i] >= n_target_tokens - row) {
      refuse_tensor(file, name, element,
                    std::to_string(-row) + " to " + std::to_string(n_target_tokens - row - 1) +
                        ", which are tokens of the model");
    }
    const auto id = static_cast<std::size_t>(row + offsets[i]);
    if (is_taken[id])
      refuse_tensor(file, name, element, "a token that no row before it has, not " + std::to_string(id));
    is_taken[id] = true;
    ids[i] = static_cast<std::int32_t>(id);
  }
  return ids;
}

}  // namespace

HeadPlan plan_head(const ModelFile& file, HeadConfig config, int n_target_tokens, const GemmRegistry& registry,
                   std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  HeadWeights unused;  // never read; places need it to point into
  WeightPlan weights = plan_places(file, head_places(config, unused), registry, overrides, policy);
  std::vector<std::int32_t> ids = read_token_ids(file, config, n_target_tokens);
  return {.config = std::move(config), .token_ids = std::move(ids), .weights = std::move(weights)};
}

KvGeometry head_kv_geometry(const HeadConfig& config, int block_tokens, int n_blocks) {
  const ModelConfig& sizes = config.layer;
  return {.layers = {{sizes.n_kv_heads, sizes.head_dim}},
          .block_tokens = block_tokens,
          .n_blocks = n_blocks,
          .dtype = sizes.kv_dtype,
          .state = {}};
}

HeadWeights load_head(const ModelFile& file, const HeadPlan& plan, Backend& backend) {
  HeadWeights weights;
  const std::vector<WeightPlace> places = head_places(plan.config, weights);
  load_places(file, places, plan.weights, plan.config.layer.head_dim, backend, {}, nullptr);
  weights.token_ids = plan.token_ids;
  return weights;
}

}  // namespace imp
