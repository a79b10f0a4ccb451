// Loads a weight row by row, as from a file.
#include "native/module/weights.h"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace imp::bindings {

std::unique_ptr<Linear> weight_of(Backend& backend, const std::string& dtype, const Bytes& file, int n, int k,
                                  const Overrides& overrides, bool deterministic) {
  const auto type = dtype_from_name(dtype);
  if (!type) throw std::invalid_argument("no dtype " + dtype);
  const GemmProblem problem = {*type, n, k};
  const auto row = static_cast<std::size_t>(*row_bytes(*type, k));
  const WeightSource source = {"w", problem, [&](std::int64_t first, std::int64_t n_rows, std::byte* out) {
                                 std::memcpy(out, file.data() + static_cast<std::size_t>(first) * row,
                                             static_cast<std::size_t>(n_rows) * row);
                               }};
  std::vector<GemmOverride> wanted;
  for (const auto& [pattern, kernel] : overrides) wanted.push_back({pattern, kernel});
  // The tests run kernels that have not run on hardware.
  const PlanPolicy policy = {.one_reduction = deterministic, .unvalidated_kernels = true};
  return backend.load_linear(source, backend.registry().plan(problem, "w", wanted, policy));
}

WorkspaceNeeds needs_of(int n_rows, std::vector<const Linear*> weights) {
  return {.max_rows = n_rows,
          .max_logits_rows = 1,
          .max_sequences = 1,
          .vocab_size = 16,
          .max_context = 16,
          .attention = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 8},
          .weights = std::move(weights)};
}

}  // namespace imp::bindings
