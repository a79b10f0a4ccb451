// Lists the tensors of a vision tower.
#include "model/vision/vision_plan.h"

#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "model/weights/layer_specs.h"
#include "model/weights/spec_list.h"

namespace imp {
namespace {

void add_patches(const VisionConfig& config, SpecList& specs, VisionWeights& weights) {
  const int hidden = config.layers.hidden_size;
  const std::string patches(config.tensors.patches), positions(config.tensors.positions);
  const std::string second(config.tensors.second_frame);
  if (config.tensors.has_pixels) {
    specs.pixels(patches + ".weight", hidden, config.patch_size, weights.patches);
  } else {
    specs.convolution(patches + ".weight", hidden, config.patch_size, weights.patches,
                      {.in_row = second.empty() ? config.frames : 1, .second = second});
  }
  if (config.patch_bias) specs.bias(patches + ".bias", hidden, weights.patch_bias);
  if (config.table_side > 0) {
    specs.host_table(positions, std::int64_t{config.table_side} * config.table_side, hidden, weights.position_table);
  } else if (config.axis_places > 0) {
    specs.tables(positions, config.axis_places, hidden, 2, weights.axis_positions);
  } else {
    specs.table(positions, config.max_part_patches(), hidden, weights.positions);
  }
}

void add_projector(const VisionConfig& config, const Projector& projector, SpecList& specs, ProjectorWeights& weights) {
  const int inputs = config.cell_width();
  const auto product = [&](const std::string& name, int n, Matrix& weight, Values& bias) {
    std::string tensor = name + std::string(projector.suffix);
    projector.is_transposed ? specs.transposed(std::move(tensor), n, inputs, weight)
                            : specs.matrix(std::move(tensor), n, inputs, weight);
    if (projector.has_bias) specs.bias(name + ".bias", n, bias);
  };
  if (projector.norm && !projector.norm->tensor.empty()) {
    specs.values(projector.norm->tensor + ".weight", inputs, weights.norm.weight).offset = projector.norm->offset;
    if (projector.norm->has_bias) specs.bias(projector.norm->tensor + ".bias", inputs, weights.norm.bias);
  }
  const bool is_one = projector.second.empty();
  product(projector.first, is_one ? config.slice_width() : inputs, weights.first, weights.first_bias);
  if (!is_one) product(projector.second, config.slice_width(), weights.second, weights.second_bias);
}

// Makes the layers and projectors. The specs point into `weights`.
std::vector<WeightSpec> vision_specs(const ModelFile& file, const VisionConfig& config, VisionWeights& weights) {
  const ModelConfig& layers = config.layers;
  SpecList specs(file, layers, config.names);
  add_patches(config, specs, weights);
  weights.layers.resize(static_cast<std::size_t>(layers.n_layers));
  for (int i = 0; i < layers.n_layers; ++i) {
    LayerSpecs(specs, layers, config.names, i, weights.layers[static_cast<std::size_t>(i)]).add_all();
  }
  if (!config.names.final_norm.empty()) specs.norm_outside(config.names.final_norm, weights.final_norm);
  if (config.is_standardized) {
    specs.values(std::string(config.tensors.mean), layers.hidden_size, weights.mean);
    specs.values(std::string(config.tensors.factors), layers.hidden_size, weights.factors);
  }
  weights.projectors.resize(config.projectors.size());
  for (std::size_t i = 0; i < config.projectors.size(); ++i) {
    add_projector(config, config.projectors[i], specs, weights.projectors[i]);
  }
  return std::move(specs).take();
}

// A tensor of the tower that nothing reads means that it computes something unknown to imp.
void refuse_unread(const ModelFile& file, const ResolvedVision& resolved, const WeightPlan& plan) {
  std::set<std::string_view> read(resolved.read_tensors.begin(), resolved.read_tensors.end());
  for (const PlannedWeight& weight : plan.weights) {
    read.insert(weight.tensor->name);
    if (weight.second_frame != nullptr) read.insert(weight.second_frame->name);
  }
  for (const TensorInfo& tensor : file.tensors()) {
    if (!resolved.architecture->owns(tensor.name) || read.contains(tensor.name)) continue;
    refuse_tensor(file, tensor.name, "shape " + shape_text(tensor), "no such tensor in this tower");
  }
}

}  // namespace

VisionPlan plan_vision(const ModelFile& file, const CellReader& reader, const GemmRegistry& registry,
                       std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  VisionPlan plan{.resolved = resolve_vision(file, reader.most_cells), .weights = {}, .memory = {}};
  const VisionConfig& config = plan.resolved.config;
  if (config.width != reader.width) {
    throw ModelError(Reason::MODEL_CONFIG, file.name() + ": makes rows of " + std::to_string(config.width) +
                                               " numbers, expected " + std::to_string(reader.width) + ", which " +
                                               reader.name + " reads");
  }
  VisionWeights unused;  // never read; specs need it to point into
  const std::vector<WeightSpec> specs = vision_specs(file, config, unused);
  plan.weights = plan_specs(file, specs, registry, overrides, policy, plan.resolved.omitted_sizes);
  refuse_unread(file, plan.resolved, plan.weights);
  return plan;
}

VisionModel load_vision(const ModelFile& file, const VisionPlan& plan, Backend& backend, const LoadProgress& progress) {
  VisionModel model{.config = plan.resolved.config, .weights = {}};
  const std::vector<WeightSpec> specs = vision_specs(file, model.config, model.weights);
  load_specs(file, specs, plan.weights, model.config.layers.head_dim, backend, progress, nullptr);
  return model;
}

}  // namespace imp
