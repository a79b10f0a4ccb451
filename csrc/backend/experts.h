// Mixture of experts: the routing rule, and its result for one batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp {

// A row goes to the n_used experts with the greatest scores; of equal scores the lower expert wins. The weights are the
// softmax of the scores over all experts, or only over the chosen ones if `normalized`, times `scale`.
struct ExpertRouting {
  int n_experts = 0;  // 0: a dense model
  int n_used = 0;
  bool normalized = false;
  float scale = 1;
};

// The routes of a batch. Rows are grouped by expert for the products: a row with n_used experts appears n_used times
// among the grouped rows. These are ordered by expert, then by row. Owned by the backend's workspace; device addresses.
struct ExpertRows {
  int n_rows = 0;  // of the batch; n_rows · n_used are grouped
  int n_experts = 0;
  int n_used = 0;
  std::int32_t* experts = nullptr;       // [n_rows, n_used], by descending score
  float* weights = nullptr;              // [n_rows, n_used]
  std::int32_t* grouped_rows = nullptr;  // [n_rows, n_used]: index among the grouped rows
  std::int32_t* begins = nullptr;        // [n_experts + 1]: first grouped row of each expert
  std::int32_t* sources = nullptr;       // [grouped rows]: row in the batch; null if the backend needs none
};

// Bytes of an ExpertRows for n_rows.
constexpr std::size_t expert_rows_bytes(int n_rows, const ExpertRouting& routing) {
  const std::size_t n_grouped = static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(routing.n_used);
  return 3 * n_grouped * sizeof(std::int32_t) +
         (static_cast<std::size_t>(routing.n_experts) + 1) * sizeof(std::int32_t);
}

}  // namespace imp
