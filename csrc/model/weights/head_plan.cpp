// Lists the tensors of a draft head.
#include "model/weights/head_plan.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "model/weights/load_weights.h"

namespace imp {
namespace {

class HeadSpecs {
 public:
  explicit HeadSpecs(const HeadConfig& config) : config_(config) {}
  void matrix(const std::string& name, std::int64_t n, std::int64_t k, Matrix& slot,
              WeightUse use = WeightUse::product) {
    if (!name.empty()) all_.push_back({.tensor = name, .use = use, .n = n, .k = k, .slot = &slot});
  }
  void vector(const std::string& name, std::int64_t n, Values& slot) {
    if (!name.empty()) all_.push_back({.tensor = name, .use = WeightUse::vector, .n = n, .k = 1, .slot = &slot});
  }
  void norm(const std::string& name, std::int64_t n, Values& slot) {
    vector(name, n, slot);
    if (!name.empty()) all_.back().offset = config_.names.norm_offset;
  }
  void append(std::vector<WeightSpec> specs) { std::ranges::move(specs, std::back_inserter(all_)); }
  std::vector<WeightSpec> take() && { return std::move(all_); }

 private:
  const HeadConfig& config_;
  std::vector<WeightSpec> all_;
};

// The layer of EAGLE-3: q, k and v are twice as wide as those of a decoder.
void add_joined_layer(HeadSpecs& specs, const HeadConfig& config, LayerWeights& layer) {
  const ModelConfig& sizes = config.stack;
  const TensorNames& names = config.names;
  const std::int64_t hidden = sizes.hidden_size, ffn = sizes.ffn_size, attention = config.attention_width();
  const std::int64_t q_width = std::int64_t{sizes.n_heads} * sizes.head_dim;
  const std::int64_t kv_width = std::int64_t{sizes.n_kv_heads} * sizes.head_dim;
  const auto named = [&](std::string_view name, const char* end) {
    return config.joined_layer + std::string(name) + end;
  };
  const auto matrix = [&](std::string_view name, std::int64_t n, std::int64_t k, Matrix& slot) {
    specs.matrix(named(name, ".weight"), n, k, slot);
  };
  matrix(names.q, q_width, attention, layer.q);
  matrix(names.k, kv_width, attention, layer.k);
  matrix(names.v, kv_width, attention, layer.v);
  if (sizes.qkv_bias) {
    specs.vector(named(names.q, ".bias"), q_width, layer.q_bias);
    specs.vector(named(names.k, ".bias"), kv_width, layer.k_bias);
    specs.vector(named(names.v, ".bias"), kv_width, layer.v_bias);
  }
  matrix(names.output, hidden, q_width, layer.output);
  specs.norm(named(names.ffn_norm, ".weight"), hidden, layer.ffn_norm.weight);
  matrix(names.gate, ffn, hidden, layer.gate);
  matrix(names.up, ffn, hidden, layer.up);
  matrix(names.down, hidden, ffn, layer.down);
}

std::vector<WeightSpec> head_specs(const ModelFile& file, const HeadConfig& config, HeadWeights& weights) {
  const HeadTensors& names = config.tensors;
  const ModelConfig& sizes = config.stack;
  const std::int64_t hidden = sizes.hidden_size;
  weights.layers.resize(sizes.layers.size());
  HeadSpecs specs(config);
  specs.matrix(names.embedding, config.embedding_rows, hidden, weights.embedding, WeightUse::lookup);
  specs.norm(names.embedding_norm, hidden, weights.embedding_norm);
  specs.norm(names.hidden_norm, hidden, weights.hidden_norm);
  specs.norm(names.tap_norm, config.hidden_width(), weights.tap_norm);
  specs.matrix(names.fuse, hidden, config.taps.empty() ? 2 * config.target_hidden : config.hidden_width(),
               weights.fuse);
  if (config.joins_for_attention) {
    add_joined_layer(specs, config, weights.layers.front());
  } else {
    for (int i = 0; i < sizes.n_layers; ++i) {
      specs.append(layer_specs(file, sizes, config.names, i, weights.layers[static_cast<std::size_t>(i)]));
    }
  }
  specs.norm(names.final_norm, hidden, weights.final_norm);
  // Rows of chosen tokens are decoded one by one.
  const WeightUse use_of_head = config.clusters.n > 0 ? WeightUse::lookup : WeightUse::output_head;
  specs.matrix(names.output_head, sizes.vocab_size, hidden, weights.own_output_head, use_of_head);
  specs.matrix(names.centroids, config.clusters.n, hidden, weights.centroids);
  specs.matrix(names.feed_back, config.target_hidden, hidden, weights.feed_back);
  return std::move(specs).take();
}

// An integer for each row of the head.
std::vector<std::int64_t> read_integers(const ModelFile& file, const HeadConfig& config, const std::string& name) {
  const TensorInfo* tensor = file.find(name);
  const auto n_rows = static_cast<std::size_t>(config.stack.vocab_size);
  const std::string expected = std::to_string(n_rows) + " integers of 64 bits";
  if (tensor == nullptr) refuse_tensor(file, name, "missing", expected);
  if (tensor->integer_bytes != sizeof(std::int64_t) || tensor->n_elements() != static_cast<std::int64_t>(n_rows)) {
    refuse_tensor(file, name, std::to_string(tensor->n_bytes) + " bytes of shape " + shape_text(*tensor), expected);
  }
  std::vector<std::int64_t> integers(n_rows);
  file.read(*tensor, 0, std::as_writable_bytes(std::span(integers)));
  return integers;
}

// The tokens of the head's rows, or those of its clusters, one cluster after the other. No token occurs twice.
std::vector<std::int32_t> read_token_ids(const ModelFile& file, const HeadConfig& config, int n_target_tokens) {
  const bool has_clusters = config.clusters.n > 0;
  const std::string& name = has_clusters ? config.tensors.clusters : config.tensors.ids;
  if (name.empty()) return {};
  const std::vector<std::int64_t> found = read_integers(file, config, name);
  const auto refuse = [&](std::int64_t row, const std::string& expected) {
    refuse_tensor(file, name,
                  "element " + std::to_string(row) + " is " + std::to_string(found[static_cast<std::size_t>(row)]),
                  expected);
  };
  const std::int64_t n_tokens = has_clusters ? config.stack.vocab_size : n_target_tokens;
  std::vector<std::int32_t> ids;
  std::vector<bool> is_taken(static_cast<std::size_t>(n_tokens));
  for (std::int64_t row = 0; const std::int64_t number : found) {
    const std::int64_t first = has_clusters ? 0 : -row;  // the number of token 0
    if (number < first || number >= n_tokens + first) {
      refuse(row,
             std::to_string(first) + " to " + std::to_string(n_tokens + first - 1) + ", which are tokens of the model");
    }
    const auto id = static_cast<std::size_t>(number - first);
    if (is_taken[id]) refuse(row, "a token that no row before it has, not " + std::to_string(id));
    is_taken[id] = true;
    ids.push_back(static_cast<std::int32_t>(id));
    ++row;
  }
  return ids;
}

// Whether the tensor is one of a layer of the head. Those of an assistant have the file to themselves.
bool is_of_layer(const HeadConfig& config, std::string_view tensor) {
  if (config.joins_for_attention) return tensor.starts_with(config.joined_layer);
  const int layer = config.names.layer_of(tensor);
  return layer >= 0 && (config.reads_target || layer < config.stack.n_layers);
}

// A tensor of a layer that nothing reads means that the head computes something unknown to imp.
void refuse_unread(const ModelFile& file, const HeadConfig& config, const WeightPlan& plan) {
  std::set<std::string_view> read(config.read_tensors.begin(), config.read_tensors.end());
  for (const PlannedWeight& weight : plan.weights) read.insert(weight.tensor->name);
  for (const TensorInfo& tensor : file.tensors()) {
    if (!is_of_layer(config, tensor.name) || read.contains(tensor.name)) continue;
    if (tensor.name.ends_with(kAnglesTable)) continue;
    refuse_tensor(file, tensor.name, "shape " + shape_text(tensor), "no such tensor in a draft head");
  }
}

}  // namespace

HeadPlan plan_head(const ModelFile& file, HeadConfig config, int n_target_tokens, const GemmRegistry& registry,
                   std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  HeadWeights unused;  // never read; specs need it to point into
  WeightPlan weights = plan_specs(file, head_specs(file, config, unused), registry, overrides, policy);
  refuse_unread(file, config, weights);
  std::vector<std::int32_t> ids = read_token_ids(file, config, n_target_tokens);
  return {.config = std::move(config), .token_ids = std::move(ids), .weights = std::move(weights)};
}

KvGeometry head_kv_geometry(const HeadConfig& config, int block_tokens, int n_blocks) {
  const ModelConfig& sizes = config.stack;
  return {.layers = {{sizes.n_kv_heads, sizes.head_dim, of_drafter(sizes.kv_types)}},
          .block_tokens = block_tokens,
          .n_blocks = n_blocks,
          .state = {}};
}

HeadWeights load_head(const ModelFile& file, const HeadPlan& plan, Backend& backend) {
  HeadWeights weights;
  const std::vector<WeightSpec> specs = head_specs(file, plan.config, weights);
  load_specs(file, specs, plan.weights, plan.config.stack.head_dim, backend, {}, nullptr);
  weights.token_ids = plan.token_ids;
  return weights;
}

}  // namespace imp
