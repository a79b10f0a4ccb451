// How rows of a batch are sent to experts: the rule, and what it came to for one batch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp {

// A row goes to the n_used experts of the greatest scores, of equal ones to the lowest. Their weights are the softmax
// of the scores, over all experts or, where `normalized`, over the chosen ones alone, times `scale`.
struct ExpertRouting {
  int n_experts = 0;  // 0: the model has none
  int n_used = 0;
  bool normalized = false;
  float scale = 1;
};

// Where each row went. Rows are grouped by expert for the products: a row that goes to n_used experts stands n_used
// times among the grouped rows, which are in the order of their experts, those of one expert in the order of the batch.
// Owned by the backend's workspace; addresses on the device.
struct ExpertRows {
  int n_rows = 0;  // of the batch; n_rows · n_used are grouped
  int n_experts = 0;
  int n_used = 0;
  std::int32_t* experts = nullptr;  // [n_rows, n_used], by descending score
  float* weights = nullptr;         // [n_rows, n_used]
  std::int32_t* places = nullptr;   // [n_rows, n_used]: the grouped row
  std::int32_t* begins = nullptr;   // [n_experts + 1]: the first grouped row of each expert
  std::int32_t* sources = nullptr;  // [grouped rows]: the batch's row of each; null where the backend needs none
};

// Bytes of ExpertRows for n_rows.
constexpr std::size_t expert_rows_bytes(int n_rows, const ExpertRouting& routing) {
  const std::size_t n_grouped = static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(routing.n_used);
  return 3 * n_grouped * sizeof(std::int32_t) +
         (static_cast<std::size_t>(routing.n_experts) + 1) * sizeof(std::int32_t);
}

}  // namespace imp
