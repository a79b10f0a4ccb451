// Lists the tensors of a decoder.
#include "model/weights/weight_specs.h"

#include <utility>

#include "model/weights/layer_specs.h"
#include "model/weights/spec_list.h"

namespace imp {
namespace {

void add_layer_table(SpecList& specs, const ModelConfig& config, const TensorNames& names, Weights& weights) {
  const std::int64_t size = config.layer_embedding.size, of_all = config.n_layers * size;
  specs.table(std::string(names.layer_table), config.vocab_size, of_all, weights.layer_table);
  specs.matrix(std::string(names.layer_projection), of_all, config.hidden_size, weights.layer_projection);
  specs.values(std::string(names.layer_projection_norm), size, weights.layer_projection_norm).factor =
      config.layer_embedding.projection_scale;
}

void add_text_embedding(SpecList& specs, const ModelConfig& config, const TextNames& names, Weights& weights) {
  const TextEmbedding& text = config.text_embedding;
  const int hidden = config.hidden_size;
  if (text.n_token_types > 0)
    specs.table(std::string(names.token_types), text.n_token_types, hidden, weights.token_types);
  if (text.position_rows > 0) specs.table(std::string(names.positions), text.position_rows, hidden, weights.positions);
  if (text.is_normed) specs.norm_outside(names.embedding_norm, weights.embedding_norm);
}

void add_text_vectors(SpecList& specs, const ModelConfig& config, const TextNames& names, Weights& weights) {
  std::int64_t width = config.hidden_size;
  weights.projections.resize(config.projections.size());
  for (std::size_t i = 0; i < weights.projections.size(); ++i) {
    const Projection& projection = config.projections[i];
    specs.biased(names.projection(i), projection.size, width, projection.has_bias, weights.projections[i]);
    width = projection.size;
  }
  if (!config.score_head) return;
  if (config.score_head->has_dense)
    specs.biased(std::string(names.score_dense), config.hidden_size, config.hidden_size, true, weights.score_dense);
  specs.biased(std::string(names.score_output), 1, config.hidden_size, true, weights.score_output);
}

void add_embedding(SpecList& specs, const ModelConfig& config, const TensorNames& names, Weights& weights) {
  const std::string embedding(names.embedding);
  if (config.tied_head) {
    specs.output_head(embedding, config.vocab_size, config.hidden_size, weights.embedding);
  } else {
    specs.table(embedding, config.vocab_size, config.hidden_size, weights.embedding);
  }
  add_text_embedding(specs, config, names.text, weights);
  if (config.layer_embedding.size > 0) add_layer_table(specs, config, names, weights);
}

}  // namespace

void LayerSpecs::add_all() {
  add_attention();
  add_feed_forward();
  if (config_.layer_embedding.size > 0) add_embedding();
}

void LayerSpecs::add_embedding() {
  const std::int64_t hidden = config_.hidden_size, size = config_.layer_embedding.size;
  specs_.matrix(names_.weight(i_, names_.embedding_gate), size, hidden, layer_.embedding_gate);
  specs_.matrix(names_.weight(i_, names_.embedding_output), hidden, size, layer_.embedding_output);
  specs_.stream_norm(i_, names_.post_embedding_norm, layer_.post_embedding_norm);
}

std::string_view name_of(WeightUse use) {
  switch (use) {
    case WeightUse::product:
      return "product";
    case WeightUse::expert:
      return "expert";
    case WeightUse::output_head:
      return "head";
    case WeightUse::lookup:
      return "lookup";
    case WeightUse::vector:
      return "vector";
  }
  return "";
}

std::vector<std::string> spare_tensors(const ModelConfig& config, const TensorNames& names) {
  std::vector<std::string> spare(names.text.unused.begin(), names.text.unused.end());
  for (int i = 0; i < config.n_layers; ++i) {
    if (!config.layers[static_cast<std::size_t>(i)].shares_kv) continue;
    for (const std::string_view name : {names.k, names.v, names.k_norm}) spare.push_back(names.weight(i, name));
  }
  return spare;
}

std::vector<WeightSpec> layer_specs(const ModelFile& file, const ModelConfig& config, const TensorNames& names, int i,
                                    LayerWeights& layer) {
  SpecList specs(file, config, names);
  LayerSpecs(specs, config, names, i, layer).add_all();
  return std::move(specs).take();
}

std::vector<WeightSpec> weight_specs(const ModelFile& file, const ModelConfig& config, const TensorNames& names,
                                     Weights& weights) {
  SpecList specs(file, config, names);
  weights.layers.resize(static_cast<std::size_t>(config.n_layers));
  add_embedding(specs, config, names, weights);
  for (int i = 0; i < config.n_layers; ++i) {
    LayerSpecs(specs, config, names, i, weights.layers[static_cast<std::size_t>(i)]).add_all();
  }
  if (config.has_final_norm) specs.norm_outside(names.final_norm, weights.final_norm);
  add_text_vectors(specs, config, names.text, weights);
  if (config.has_head && !config.tied_head) {
    specs.output_head(std::string(names.output_head), config.vocab_size, config.hidden_size, weights.own_output_head);
  }
  return std::move(specs).take();
}

}  // namespace imp
