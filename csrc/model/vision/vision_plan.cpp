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

// Makes the layers. The specs point into `weights`.
std::vector<WeightSpec> vision_specs(const ModelFile& file, const VisionConfig& config, VisionWeights& weights) {
  const ModelConfig& layers = config.layers;
  const std::string patches(config.tensors.patches);
  SpecList specs(file, layers, config.names);
  specs.convolution(patches + ".weight", layers.hidden_size, config.patch_size, weights.patches);
  specs.bias(patches + ".bias", layers.hidden_size, weights.patch_bias);
  specs.table(std::string(config.tensors.positions), config.n_patches(), layers.hidden_size, weights.positions);
  weights.layers.resize(static_cast<std::size_t>(layers.n_layers));
  for (int i = 0; i < layers.n_layers; ++i) {
    LayerSpecs(specs, layers, config.names, i, weights.layers[static_cast<std::size_t>(i)]).add_all();
  }
  specs.final_norm(weights.final_norm);
  specs.matrix(std::string(config.tensors.projection), config.width, config.cell_width(), weights.projection);
  return std::move(specs).take();
}

// A tensor of the tower that nothing reads means that it computes something unknown to imp.
void refuse_unread(const ModelFile& file, const VisionArchitecture& architecture, const WeightPlan& plan) {
  std::set<std::string_view> read;
  for (const PlannedWeight& weight : plan.weights) read.insert(weight.tensor->name);
  for (const TensorInfo& tensor : file.tensors()) {
    if (!architecture.owns(tensor.name) || read.contains(tensor.name)) continue;
    refuse_tensor(file, tensor.name, "shape " + shape_text(tensor), "no such tensor in this tower");
  }
}

}  // namespace

VisionPlan plan_vision(const ModelFile& file, const CellReader& reader, const GemmRegistry& registry,
                       std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  VisionPlan plan{.resolved = resolve_vision(file), .weights = {}, .memory = {}};
  const VisionConfig& config = plan.resolved.config;
  if (config.width != reader.hidden_size) {
    throw ModelError(Reason::MODEL_CONFIG, file.name() + ": makes rows of " + std::to_string(config.width) +
                                               " numbers, expected " + std::to_string(reader.hidden_size) +
                                               ", the hidden size of " + reader.name);
  }
  VisionWeights unused;  // never read; specs need it to point into
  const std::vector<WeightSpec> specs = vision_specs(file, config, unused);
  plan.weights = plan_specs(file, specs, registry, overrides, policy, plan.resolved.omitted_sizes);
  refuse_unread(file, *plan.resolved.architecture, plan.weights);
  return plan;
}

VisionModel load_vision(const ModelFile& file, const VisionPlan& plan, Backend& backend, const LoadProgress& progress) {
  VisionModel model{.config = plan.resolved.config, .weights = {}};
  const std::vector<WeightSpec> specs = vision_specs(file, model.config, model.weights);
  load_specs(file, specs, plan.weights, model.config.layers.head_dim, backend, progress, nullptr);
  return model;
}

}  // namespace imp
