// Assigns tensors to weights and plans their kernels.
#include "model/weights/weight_plan.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace imp {
namespace {

bool is_transposed(const TensorInfo& tensor, const WeightSpec& spec) {
  if (spec.form == StackForm::rows || traits(tensor.dtype).block_elements > 1) return false;
  const std::int64_t n_rows = spec.rows_in_tensor();
  return spec.form == StackForm::columns || (tensor.dims[0] == n_rows && tensor.dims[1] == spec.k && n_rows != spec.k);
}

// Without dimensions of 1 at the end.
std::vector<std::int64_t> shape_of(const TensorInfo& tensor, const WeightSpec& spec) {
  const std::int64_t n_rows = spec.rows_in_tensor();
  std::vector<std::int64_t> shape = {spec.k, n_rows};
  if (!spec.row_dims.empty()) {
    shape = spec.row_dims;
    shape.push_back(n_rows);
  }
  if (spec.use == WeightUse::vector && spec.k == 1) shape = {n_rows};
  // config.json's models have one input channel between the taps of a convolution and its channels.
  if (spec.use == WeightUse::vector && spec.k > 1 && tensor.n_dims == 3) shape = {spec.k, 1, n_rows};
  if (is_transposed(tensor, spec)) shape = {n_rows, spec.k};
  const bool is_stack = std::holds_alternative<Stack*>(spec.slot) || spec.n_matrices > 1;
  if (is_stack) shape.push_back(spec.n_matrices);
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

// The checked tensor of a spec.
const TensorInfo& tensor_of(const ModelFile& file, const WeightSpec& spec, const std::string& omitted_sizes = {}) {
  const TensorInfo* tensor = file.find(spec.tensor);
  if (!tensor) refuse_tensor(file, spec.tensor, "missing", shape_text(shape_of({}, spec)));
  const std::vector<std::int64_t> shape = shape_of(*tensor, spec);
  if (!has_shape(*tensor, shape)) {
    const std::string hint = omitted_sizes.empty() ? "" : "; config.json does not have " + omitted_sizes;
    refuse_tensor(file, spec.tensor, "shape " + imp::shape_text(*tensor), shape_text(shape) + hint);
  }
  if (spec.use == WeightUse::vector || spec.in_turn > 1 || spec.frames.are_summed()) require_float(file, *tensor);
  return *tensor;
}

// The tensors of a file, and which of them the model uses.
class Claims {
 public:
  Claims(const ModelFile& file, const ResolvedModel& model)
      : file_(file), names_(*model.names), config_(model.config), omitted_sizes_(model.omitted_sizes) {
    for (const std::string& name : model.read_tensors) claimed_.insert(name);
  }

  // Further parts of a tensor follow its first.
  const TensorInfo& claim(const WeightSpec& spec) {
    const TensorInfo& tensor = tensor_of(file_, spec, omitted_sizes_);
    const bool is_further_part = spec.first_row > 0;
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
  const std::string& omitted_sizes_;
  std::set<std::string_view> claimed_;
};

// A lookup table keeps the file's layout, which the reference kernel reads.
GemmPlan lookup_plan(const GemmRegistry& registry) {
  const GemmKernel& reference = registry.kernels().back();
  return GemmPlan{.layout = reference.layout, .kernels = {{&reference, kAnyRows}}};
}

void require_overrides_match(std::span<const WeightSpec> specs, std::span<const GemmOverride> overrides) {
  std::vector<std::string_view> products;
  for (const WeightSpec& spec : specs) {
    if (spec.use != WeightUse::lookup && spec.use != WeightUse::vector) products.push_back(spec.tensor);
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

PlannedWeight planned(const WeightSpec& spec, const TensorInfo& tensor, const GemmRegistry& registry,
                      std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  PlannedWeight weight{
      .tensor = &tensor,
      .use = spec.use,
      .problem = {spec.frames.are_summed() ? DType::F32 : tensor.dtype, spec.n, spec.k, spec.use == WeightUse::expert},
      .plan = {},
      .n_matrices = spec.n_matrices,
      .first_row = spec.first_row,
      .tensor_rows = spec.rows_in_tensor(),
      .groups = spec.groups,
      .is_transposed = is_transposed(tensor, spec),
      .in_turn = spec.in_turn};
  if (spec.frames.are_summed()) {
    weight.frame_size = spec.row_dims[0] * spec.row_dims[1];
    weight.frames_in_row = spec.frames.in_row;
  }
  if (spec.use == WeightUse::vector) {
    weight.n_bytes = static_cast<std::size_t>(spec.n * spec.k * spec.n_matrices) * sizeof(float);
  } else {
    weight.plan = spec.use == WeightUse::lookup ? lookup_plan(registry)
                                                : registry.plan(weight.problem, spec.tensor, overrides, policy);
    weight.n_bytes = packed_bytes(weight.problem, weight.plan.layout) * static_cast<std::size_t>(spec.n_matrices);
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

WeightPlan plan_specs(const ModelFile& file, std::span<const WeightSpec> specs, const GemmRegistry& registry,
                      std::span<const GemmOverride> overrides, const PlanPolicy& policy,
                      const std::string& omitted_sizes) {
  WeightPlan plan;
  for (const WeightSpec& spec : specs) {
    PlannedWeight weight = planned(spec, tensor_of(file, spec, omitted_sizes), registry, overrides, policy);
    if (!spec.frames.second.empty()) {
      WeightSpec second = spec;
      second.tensor = spec.frames.second;
      weight.second_frame = &tensor_of(file, second, omitted_sizes);
    }
    add(std::move(weight), plan);
  }
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

double products_per_row(const WeightPlan& plan, const ExpertRouting& routing) {
  double total = 0;
  for (const PlannedWeight& weight : plan.weights) {
    if (weight.use != WeightUse::product && weight.use != WeightUse::expert) continue;
    double products = static_cast<double>(weight.problem.n) * static_cast<double>(weight.problem.k) * weight.n_matrices;
    if (weight.use == WeightUse::expert) products *= static_cast<double>(routing.n_used) / routing.n_experts;
    total += products;
  }
  return total;
}

WeightPlan plan_weights(const ModelFile& file, const ResolvedModel& model, const GemmRegistry& registry,
                        std::span<const GemmOverride> overrides, const PlanPolicy& policy) {
  const TensorNames& names = *model.names;
  Weights unused;  // never read; specs need it to point into
  const std::vector<WeightSpec> specs = weight_specs(file, model.config, names, unused);
  require_overrides_match(specs, overrides);

  WeightPlan plan;
  Claims claims(file, model);
  for (const WeightSpec& spec : specs) add(planned(spec, claims.claim(spec), registry, overrides, policy), plan);
  for (const std::string& name : spare_tensors(model.config, names)) claims.ignore(name);
  if (!model.config.ropes.empty()) {
    plan.rope_factors = claim_rope_factors(file, names, model.config.ropes.front(), claims);
  }
  claims.finish(plan.warnings);
  std::ranges::move(small_batch_warnings(plan.weights), std::back_inserter(plan.warnings));
  return plan;
}

}  // namespace imp
