// Loading and scanning.
#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "model/number_text.h"
#include "model/rope.h"

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

// A whole small tensor as finite floats.
std::vector<float> read_values(const ModelFile& file, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.n_bytes));
  file.read(tensor, 0, bytes);
  std::vector<float> values(static_cast<std::size_t>(tensor.n_elements()));
  const DTypeTraits& type = traits(tensor.dtype);
  type.dequantize(bytes.data(), values.data(), tensor.n_elements() / type.block_elements);
  require_finite(file, tensor, values, 0);
  return values;
}

// Which row of the file becomes row `row` of the weight.
std::int64_t file_row(RowOrder order, std::int64_t row, int head_dim) {
  if (order == RowOrder::file) return row;
  const std::int64_t in_head = row % head_dim;
  return row - in_head + in_head / 2 + (in_head % 2) * (head_dim / 2);
}

Matrix load_matrix(const ModelFile& file, const PlannedWeight& weight, RowOrder order, int head_dim, Backend& backend) {
  const TensorInfo& tensor = *weight.tensor;
  const auto row_size = static_cast<std::uint64_t>(*row_bytes(weight.problem.weight, weight.problem.k));
  const auto read_rows = [&](std::int64_t first_row, std::int64_t n_rows, std::byte* out) {
    file.read(tensor, static_cast<std::uint64_t>(first_row) * row_size,
              {out, static_cast<std::size_t>(static_cast<std::uint64_t>(n_rows) * row_size)});
  };
  const auto read_one_by_one = [&](std::int64_t first_row, std::int64_t n_rows, std::byte* out) {
    for (std::int64_t i = 0; i < n_rows; ++i) {
      read_rows(file_row(order, first_row + i, head_dim), 1, out + static_cast<std::uint64_t>(i) * row_size);
    }
  };
  WeightSource source{.name = tensor.name, .problem = weight.problem, .read = read_rows};
  if (order != RowOrder::file) source.read = read_one_by_one;
  return backend.load_linear(source, weight.plan);
}

Values load_values(const ModelFile& file, const TensorInfo& tensor, const WeightPlace& place, int head_dim,
                   Backend& backend) {
  const std::vector<float> stored = read_values(file, tensor);
  std::vector<float> values(stored.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t from = file_row(place.order, static_cast<std::int64_t>(i), head_dim);
    values[i] = stored[static_cast<std::size_t>(from)] + place.offset;
  }
  return backend.load_vector(values);
}

// The order in which the planned weights lie in the file.
std::vector<std::size_t> file_order(const WeightPlan& plan) {
  std::vector<std::size_t> order(plan.weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) {
    return std::pair(plan.weights[i].tensor->shard, plan.weights[i].tensor->file_offset);
  });
  return order;
}

}  // namespace

Weights load_weights(const ModelFile& file, const ResolvedModel& model, const WeightPlan& plan, Backend& backend,
                     const LoadProgress& progress) {
  Weights weights;
  const std::vector<WeightPlace> places = weight_places(model.config, *model.architecture->names, weights);
  IMP_CHECK(places.size() == plan.weights.size());
  std::uint64_t total = 0;
  for (const PlannedWeight& weight : plan.weights) total += weight.tensor->n_bytes;
  std::uint64_t done = 0;
  for (const std::size_t i : file_order(plan)) {
    const PlannedWeight& weight = plan.weights[i];
    const WeightPlace& place = places[i];
    if (weight.use == WeightUse::vector) {
      *std::get<Values*>(place.slot) = load_values(file, *weight.tensor, place, model.config.head_dim, backend);
    } else {
      *std::get<Matrix*>(place.slot) = load_matrix(file, weight, place.order, model.config.head_dim, backend);
    }
    done += weight.tensor->n_bytes;
    if (progress) progress(done, total);
  }
  return weights;
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
    ropes.push_back(resolve_rope(rope, rope.file_factors ? factors : std::vector<float>{}));
  }
  return ropes;
}

}  // namespace imp
