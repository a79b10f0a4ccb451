// Loads weights and scans vectors.
#include "model/weights/load_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/printable.h"
#include "model/config/number_text.h"
#include "model/config/rope.h"
#include "model/weights/weight_rows.h"

namespace imp {
namespace {

[[noreturn]] void refuse_element(const ModelFile& file, const TensorInfo& tensor, Reason reason, std::int64_t element,
                                 float found, const char* expected) {
  throw ModelError(reason, file.name() + ": tensor " + printable(tensor.name) + ": element " + std::to_string(element) +
                               " is " + number_text(found) + ", expected " + expected);
}

void require_finite(const ModelFile& file, const TensorInfo& tensor, std::span<const float> values,
                    std::int64_t first_element) {
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  refuse_element(file, tensor, Reason::MODEL_NONFINITE, first_element + (bad - values.begin()), *bad,
                 "a finite number");
}

// A small tensor as finite floats.
std::vector<float> read_values(const ModelFile& file, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.n_bytes));
  file.read(tensor, 0, bytes);
  std::vector<float> values(static_cast<std::size_t>(tensor.n_elements()));
  const DTypeTraits& type = traits(tensor.dtype);
  type.dequantize(bytes.data(), values.data(), tensor.n_elements() / type.block_elements);
  require_finite(file, tensor, values, 0);
  return values;
}

float value_of(const WeightSpec& spec, float stored) {
  if (spec.map == ValueMap::negative_exp) return -static_cast<float>(std::exp(static_cast<double>(stored)));
  return (stored + spec.offset) * spec.factor;
}

Values load_values(const ModelFile& file, const TensorInfo& tensor, const WeightSpec& spec, int head_dim,
                   Backend& backend) {
  const std::vector<float> stored = read_values(file, tensor);
  std::vector<float> values;
  for (std::int64_t matrix = 0; matrix < spec.n_matrices; ++matrix) {
    const std::int64_t first = matrix * spec.rows_in_tensor() + spec.first_row;
    for (std::int64_t column = 0; column < spec.k; ++column) {
      for (std::int64_t i = 0; i < spec.n; ++i) {
        const std::int64_t row = first + spec.groups.file_row(file_row(spec.order, i, head_dim));
        values.push_back(value_of(spec, stored[static_cast<std::size_t>(row * spec.k + column)]));
      }
    }
  }
  return backend.load_vector(values);
}

// The planned weights in the file's order.
std::vector<std::size_t> file_order(const WeightPlan& plan) {
  std::vector<std::size_t> order(plan.weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) {
    const PlannedWeight& weight = plan.weights[i];
    return std::tuple(weight.tensor->shard, weight.tensor->file_offset, weight.first_row);
  });
  return order;
}

// Counts bytes read and reports every hundredth of them, since the callback may wait for the GIL.
class ProgressMeter {
 public:
  ProgressMeter(const WeightPlan& plan, const LoadProgress& progress) : progress_(progress) {
    for (const PlannedWeight& weight : plan.weights) total_ += weight.file_bytes();
  }
  void add(std::uint64_t n_bytes) {
    done_ += n_bytes;
    if (!progress_ || (done_ < total_ && done_ - reported_ < total_ / 100)) return;
    reported_ = done_;
    progress_(done_, total_);
  }
  std::uint64_t done() const noexcept { return done_; }
  // Forgets the bytes counted after `done`: they will be read again.
  void go_back_to(std::uint64_t done) noexcept { done_ = reported_ = done; }

 private:
  const LoadProgress& progress_;
  std::uint64_t total_ = 0, done_ = 0, reported_ = 0;
};

std::vector<Matrix> load_matrices(const ModelFile& file, std::span<const PlacedMatrix> matrices, int head_dim,
                                  Backend& backend, ProgressMeter& meter) {
  std::vector<LinearRequest> requests;
  for (const PlacedMatrix& matrix : matrices) {
    requests.push_back({source_of(file, matrix, head_dim), matrix.weight->plan});
  }
  return backend.load_linears(requests, [&](std::uint64_t n_bytes) { meter.add(n_bytes); });
}

// Empty if no packed weights can be used.
std::vector<Matrix> load_packed(std::span<const PlacedMatrix> matrices, Backend& backend, ProgressMeter& meter,
                                PackedWeights& packed) {
  const std::uint64_t done_before = meter.done();
  try {
    const std::unique_ptr<const PackedFile> file = packed.cache->open();
    std::vector<LinearRequest> requests;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const PlannedWeight& weight = *matrices[i].weight;
      const auto read = [i, &file](std::uint64_t offset, std::span<std::byte> out) { file->read(i, offset, out); };
      requests.push_back(
          {{.name = weight.tensor->name, .problem = weight.problem, .read = {}, .read_packed = read}, weight.plan});
    }
    std::vector<Matrix> loaded = backend.load_linears(requests, [&](std::uint64_t n_bytes) { meter.add(n_bytes); });
    packed.was_read = true;
    return loaded;
  } catch (const ModelError& error) {
    packed.why = error.what();
    meter.go_back_to(done_before);
    return {};
  }
}

// The matrices of a plan in file order, with their destinations.
struct PlacedMatrices {
  std::vector<PlacedMatrix> all;
  std::vector<Matrix*> slots;

  void add(const PlannedWeight& weight, const WeightSpec& spec) {
    Stack* const* const stack = std::get_if<Stack*>(&spec.slot);
    if (stack == nullptr) return add(weight, spec.order, 0, *std::get<Matrix*>(spec.slot));
    (*stack)->resize(static_cast<std::size_t>(weight.n_matrices));
    for (int i = 0; i < weight.n_matrices; ++i) {
      add(weight, spec.order, i, (**stack)[static_cast<std::size_t>(i)]);
    }
  }

 private:
  void add(const PlannedWeight& weight, RowOrder order, int index, Matrix& slot) {
    all.push_back({&weight, order, index});
    slots.push_back(&slot);
  }
};

}  // namespace

Weights load_weights(const ModelFile& file, const ResolvedModel& model, const WeightPlan& plan, Backend& backend,
                     const LoadProgress& progress, PackedWeights* packed) {
  Weights weights;
  load_specs(file, weight_specs(file, model.config, *model.names, weights), plan, model.config.head_dim, backend,
             progress, packed);
  return weights;
}

void load_specs(const ModelFile& file, std::span<const WeightSpec> specs, const WeightPlan& plan, int head_dim,
                Backend& backend, const LoadProgress& progress, PackedWeights* packed) {
  IMP_CHECK(specs.size() == plan.weights.size());
  ProgressMeter meter(plan, progress);
  PlacedMatrices matrices;
  for (const std::size_t i : file_order(plan)) {
    const PlannedWeight& weight = plan.weights[i];
    const WeightSpec& spec = specs[i];
    if (weight.use == WeightUse::vector) {
      if (HostTable* const* const table = std::get_if<HostTable*>(&spec.slot)) {
        **table = read_values(file, *weight.tensor);
      } else {
        *std::get<Values*>(spec.slot) = load_values(file, *weight.tensor, spec, head_dim, backend);
      }
      meter.add(weight.file_bytes());
    } else {
      matrices.add(weight, spec);
    }
  }
  std::vector<Matrix> loaded;
  if (packed && !backend.keeps_packed()) {
    packed->why = "device " + std::string(backend.caps().device) + " keeps its weights in its own memory";
    packed = nullptr;
  }
  if (packed) {
    packed->cache.emplace(packed->folder, file, matrices.all, head_dim);
    loaded = load_packed(matrices.all, backend, meter, *packed);
  }
  if (loaded.empty()) loaded = load_matrices(file, matrices.all, head_dim, backend, meter);
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    Matrix& slot = *matrices.slots[i];
    slot = std::move(loaded[i]);
    if (packed) packed->matrices.push_back(slot.get());
  }
}

std::vector<Rope> load_ropes(const ModelFile& file, const ModelConfig& config, const WeightPlan& plan) {
  std::vector<float> factors;
  if (plan.rope_factors) {
    factors = read_values(file, *plan.rope_factors);
    const auto bad = std::ranges::find_if(factors, [](float factor) { return factor <= 0; });
    if (bad != factors.end()) {
      refuse_element(file, *plan.rope_factors, Reason::MODEL_VALUE, bad - factors.begin(), *bad, "a divisor above 0");
    }
  }
  std::vector<Rope> ropes;
  for (const RopeConfig& rope : config.ropes) {
    ropes.push_back(resolve_rope(rope, rope.file_factors ? std::span<const float>(factors) : divisors_of(rope)));
  }
  return ropes;
}

}  // namespace imp
