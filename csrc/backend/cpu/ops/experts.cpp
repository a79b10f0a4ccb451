// Top-k routing by insertion, grouping by counting sort.
#include "backend/cpu/ops/experts.h"

#include <algorithm>
#include <cmath>

namespace imp::cpu {
namespace {

// Whether a score comes before `other`, the score of an expert with a lower index; an equal score does not. NaN comes
// before all numbers, so that it is chosen and reported.
bool beats(float score, float other) {
  return score > other || (std::isnan(score) && !std::isnan(other));
}

}  // namespace

void choose_experts(const CpuOps& ops, const ExpertRouting& routing, float* scores, std::int32_t* experts,
                    float* weights) {
  int n_chosen = 0;
  for (std::int32_t expert = 0; expert < routing.n_experts; ++expert) {
    const float score = scores[expert];
    int at = n_chosen;
    while (at > 0 && beats(score, weights[at - 1])) --at;
    if (at == routing.n_used) continue;
    n_chosen = std::min(n_chosen + 1, routing.n_used);
    std::copy_backward(weights + at, weights + n_chosen - 1, weights + n_chosen);
    std::copy_backward(experts + at, experts + n_chosen - 1, experts + n_chosen);
    weights[at] = score;
    experts[at] = expert;
  }
  if (routing.normalized) {
    ops.softmax(weights, routing.n_used);
  } else {
    ops.softmax(scores, routing.n_experts);
    for (int i = 0; i < routing.n_used; ++i) weights[i] = scores[experts[i]];
  }
  if (routing.scale != 1) ops.scale(weights, routing.n_used, routing.scale);
}

void group_by_expert(const ExpertRows& rows) {
  const int n_grouped = rows.n_rows * rows.n_used;
  std::fill_n(rows.begins, rows.n_experts + 1, 0);
  for (int i = 0; i < n_grouped; ++i) ++rows.begins[rows.experts[i] + 1];
  for (int expert = 0; expert < rows.n_experts; ++expert) rows.begins[expert + 1] += rows.begins[expert];
  // Each begin advances to the next one while the rows of its expert are numbered; then it is moved back.
  for (int i = 0; i < n_grouped; ++i) rows.grouped_rows[i] = rows.begins[rows.experts[i]]++;
  std::copy_backward(rows.begins, rows.begins + rows.n_experts, rows.begins + rows.n_experts + 1);
  rows.begins[0] = 0;
}

}  // namespace imp::cpu
