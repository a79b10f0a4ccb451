// Assigns tensors to weights and plans their kernels.
#include "model/weight_plan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace imp {
namespace {

bool is_transposed(const TensorInfo& tensor, const WeightPlace& place) {
  if (place.form == StackForm::rows || traits(tensor.dtype).block_elements > 1) return false;
  const std::int64_t n_rows = place.rows_in_tensor();
  return place.form == StackForm::columns ||
         (tensor.dims[0] == n_rows && tensor.dims[1] == place.k && n_rows != place.k);
}

// Without dimensions of 1 at the end.
std::vector<std::int64_t> shape_of(const TensorInfo& tensor, const WeightPlace& place) {
  const std::int64_t n_rows = place.rows_in_tensor();
  std::vector<std::int64_t> shape = {place.k, n_rows};
  if (place.use == WeightUse::vector && place.k == 1) shape = {n_rows};
  // config.json's models have one input channel between the taps of a convolution and its channels.
  if (place.use == WeightUse::vector && place.k > 1 && tensor.n_dims == 3) shape = {place.k, 1, n_rows};
  if (is_transposed(tensor, place)) shape = {n_rows, place.k};
  const bool is_stack = std::holds_alternative<Stack*>(place.slot) || place.n_matrices > 1;
  if (is_stack) shape.push_back(place.n_matrices);
  return shape;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t dim : shape) text += (text.empty() ? "[" : ", ") + std::to_string(dim);
  return text + "]";
}

// A stack of one matrix has the shape of a matrix.
bool has_shape(const TensorInfo& tensor, const std::vector<std::int64_t>& shape) {
  std::int64_t n_elements = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (tensor.dims[i] != shape[i]) return false;
    n_elements *= shape[i];
  }
  return tensor.n_elements() == n_elements;
}

void require_float(const ModelFile& file, const TensorInfo& tensor) {
  if (tensor.dtype == DType::F32 || tensor.dtype == DType::F16 || tensor.dtype == DType::BF16) return;
  refuse_tensor(file, tensor.name, "type " + std::string(traits(tensor.dtype).name), "one of f32, f16, bf16");
}

// The checked tensor of a place.
const TensorInfo& tensor_of(const ModelFile& file, const WeightPlace& place) {
  const TensorInfo* tensor = file.find(place.tensor);
  if (!tensor) refuse_tensor(file, place.tensor, "missing", shape_text(shape_of({}, place)));
  const std::vector<std::int64_t> shape = shape_of(*tensor, place);
  if (!has_shape(*tensor, shape)) {
    refuse_tensor(file, place.tensor, "shape " + imp::shape_text(*tensor), shape_text(shape));
  }
  if (place.use == WeightUse::vector) require_float(file, *tensor);
  return *tensor;
}

// The tensors of a file, and which of them the model uses.
class Claims {
 public:
  Claims(const ModelFile& file, const ResolvedModel& model) : file_(file), names_(*model.names), config_(model.config) {
    for (const std::string& name : model.read_tensors) claimed_.insert(name);
  }

  // Further parts of a tensor follow its first.
  const TensorInfo& claim(const WeightPlace& place) {
    const TensorInfo& tensor = tensor_of(file_, place);
    const bool is_further_part = place.first_row > 0;
    IMP_CHECK(claimed_.insert(tensor.name).second != is_further_part);
    return tensor;
  }

  // Accepts a tensor that the model does not need.
  void ignore(std::string_view name) {
    if (const TensorInfo* tensor = file_.find(name)) claimed_.insert(tensor->name);
  }

  const TensorInfo& claim_factors(std::string_view name, int n_pairs) {
    return claim({.tensor = std::string(name), .use = WeightUse::vector, .n = n_pairs, .k = 1, .slot = {}});
  }

  // Unused tensors: an error if they belong to the model, else a warning.
  void finish(std::vector<std::string>& warnings) const {
    std::string unused;
    std::size_t n_unused = 0;
    constexpr std::size_t kShown = 4;
    for (const TensorInfo& tensor : file_.tensors()) {
      if (claimed_.contains(tensor.name)) continue;
      if (names_.belongs_to_decoder(tensor.name) && !is_of_draft(tensor.name)) {
        refuse_tensor(file_, tensor.name, "shape " + imp::shape_text(tensor), "no such tensor in this architecture");
      }
      if (++n_unused <= kShown) unused += (unused.empty() ? "" : ", ") + printable(tensor.name);
    }
    if (n_unused == 0) return;
    warnings.push_back(std::to_string(n_unused) + " tensors are not part of the model and not read: " + unused +
                       (n_unused > kShown ? ", ..." : ""));
  }

 private:
  bool is_of_draft(std::string_view name) const {
    const int layer = names_.layer_of(name);
    return layer >= config_.n_layers && layer < config_.n_layers + config_.n_draft_layers;
  }

  const ModelFile& file_;
  const TensorNames& names_;
  const ModelConfig& config_;
  std::set<std::string_view> claimed_;
};

// A lookup table keeps the file's layout, which the reference kernel reads.
GemmPlan lookup_plan(const GemmRegistry& registry) {
  const GemmKernel& reference = registry.kernels().back();
  return GemmPlan{.layout = reference.layout, .kernels = {{&reference, kAnyRows}}};
}

void require_overrides_match(std::span<const WeightPlace> places, std::span<const GemmOverride> overrides) {
  std::vector<std::string_view> products;
  for (const WeightPlace& place : places) {
    if (place.use != WeightUse::lookup && place.use != WeightUse::vector) products.push_back(place.tensor);
  }
  require_matches(overrides, products);
}

// A warning for each kernel that an override uses also for fewer rows than it is tuned for.
std::vector<std::string> small_batch_warnings(std::span<const PlannedWeight> weights) {
  std::set<std::string_view> names;
  std::vector<std::string> warnings;
  for (const PlannedWeight& weight : weights) {
    if (weight.plan.kernels.empty()) continue;
    const GemmKernel& first = *weight.plan.kernels.front().kernel;
    if (first.min_preferred_m == 1 || !names.insert(first.name).second) continue;
    warnings.push_back(std::string(first.name) + " is tuned for " + std::to_string(first.min_preferred_m) +
                       " rows and more, but multiplies batches of any size: model.overrides.unvalidated_kernels allows "
                       "this, and no kernel for fewer rows has run on hardware of this kind");
  }
  return warnings;
}

// Claims the divisors of frequencies that the file holds. Returns those that the context needs.
const TensorInfo* claim_rope_factors(const ModelFile& file, const TensorNames& names, const RopeConfig& rope,
                                     Claims& claims) {
  const int n_pairs = rope.dims / 2;
  if (file.find(names.long_rope_factors) || file.find(names.short_rope_factors)) {
    const TensorInfo& within = claims.claim_factors(names.short_rope_factors, n_pairs);
    const TensorInfo& beyond = claims.claim_factors(names.long_rope_factors, n_pairs);
    return rope.scaling.is_beyond_original() ? &beyond : &within;
  }
  return file.find(names.rope_factors) ? &claims.claim_factors(names.rope_factors, n_pairs) : nullptr;
}

PlannedWeight planned(const WeightPlace& place, const TensorInfo& tensor, const GemmRegistry& registry,
                      std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  PlannedWeight weight{.tensor = &tensor,
                       .use = place.use,
                       .problem = {tensor.dtype, place.n, place.k, place.use == WeightUse::expert},
                       .plan = {},
                       .n_matrices = place.n_matrices,
                       .first_row = place.first_row,
                       .tensor_rows = place.rows_in_tensor(),
                       .groups = place.groups,
                       .is_transposed = is_transposed(tensor, place)};
  if (place.use == WeightUse::vector) {
    weight.n_bytes = static_cast<std::size_t>(place.n * place.k * place.n_matrices) * sizeof(float);
  } else {
    weight.plan = place.use == WeightUse::lookup ? lookup_plan(registry)
                                                 : registry.plan(weight.problem, place.tensor, overrides, policy);
    weight.n_bytes = packed_bytes(weight.problem, weight.plan.layout) * static_cast<std::size_t>(place.n_matrices);
  }
  return weight;
}

void add(PlannedWeight weight, WeightPlan& plan) {
  plan.n_bytes += weight.n_bytes;
  plan.weights.push_back(std::move(weight));
}

}  // namespace

void refuse_tensor(const ModelFile& file, std::string_view name, const std::string& found,
                   const std::string& expected) {
  throw ModelError(Reason::MODEL_TENSOR,
                   file.name() + ": tensor " + printable(name) + ": " + found + ", expected " + expected);
}

WeightPlan plan_places(const ModelFile& file, std::span<const WeightPlace> places, const GemmRegistry& registry,
                       std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  WeightPlan plan;
  for (const WeightPlace& place : places)
    add(planned(place, tensor_of(file, place), registry, overrides, policy), plan);
  return plan;
}

std::uint64_t bytes_per_token(const WeightPlan& plan, const ExpertRouting& routing) {
  std::uint64_t total = 0;
  for (const PlannedWeight& weight : plan.weights) {
    if (weight.use == WeightUse::lookup) continue;
    std::uint64_t read = weight.n_bytes;
    if (weight.use == WeightUse::expert) {
      read = read / static_cast<std::uint64_t>(routing.n_experts) * static_cast<std::uint64_t>(routing.n_used);
    }
    total += read;
  }
  return total;
}

WeightPlan plan_weights(const ModelFile& file, const ResolvedModel& model, const GemmRegistry& registry,
                        std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  const TensorNames& names = *model.names;
  Weights unused;  // never read; places need it to point into
  const std::vector<WeightPlace> places = weight_places(file, model.config, names, unused);
  require_overrides_match(places, overrides);

  WeightPlan plan;
  Claims claims(file, model);
  for (const WeightPlace& place : places) add(planned(place, claims.claim(place), registry, overrides, policy), plan);
  for (const std::string& name : spare_tensors(model.config, names)) claims.ignore(name);
  plan.rope_factors = claim_rope_factors(file, names, model.config.ropes.front(), claims);
  claims.finish(plan.warnings);
  std::ranges::move(small_batch_warnings(plan.weights), std::back_inserter(plan.warnings));
  return plan;
}

}  // namespace imp
