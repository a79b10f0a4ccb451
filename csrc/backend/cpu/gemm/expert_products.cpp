// Grouped GEMM: the products of all experts that have rows are divided into tasks together.
#include <algorithm>
#include <cstring>

#include "backend/cpu/gemm/gemm_runner.h"
#include "base/error.h"

namespace imp::cpu {

GemmRunner::Prepared GemmRunner::prepare_expert_in(Rows x, const ExpertRows& rows, ActivationFormat format) {
  const PrepareRow prepare_row = prepare_row_[format];
  const std::ptrdiff_t stride = activation_bytes(format, x.width);
  std::byte* const grouped = prepared_buffer(format, stride * x.n_rows * rows.n_used);
  for_rows(x.n_rows, [&](int row) {
    const float* const from = x.data + row * x.stride;
    const std::int32_t* const grouped_rows = rows.grouped_rows + std::ptrdiff_t{row} * rows.n_used;
    std::byte* const first = grouped + grouped_rows[0] * stride;
    if (prepare_row != nullptr) {
      prepare_row(from, x.width, first);
    } else {
      std::memcpy(first, from, static_cast<std::size_t>(stride));
    }
    for (int i = 1; i < rows.n_used; ++i) {
      std::memcpy(grouped + grouped_rows[i] * stride, first, static_cast<std::size_t>(stride));
    }
  });
  return {grouped, stride};
}

template <class PrepareGrouped>
void GemmRunner::add_experts(const ExpertTerm& term, const ExpertRows& rows, Inputs& inputs,
                             const PrepareGrouped& prepare_grouped) {
  for (int expert = 0; expert < rows.n_experts; ++expert) {
    const int first = rows.begins[expert];
    const int n_rows = rows.begins[expert + 1] - first;
    if (n_rows == 0) continue;
    const auto& weight = static_cast<const CpuLinear&>(*term.weights[static_cast<std::size_t>(expert)]);
    const GemmKernel& kernel = weight.plan().kernel_for(n_rows);
    Prepared& grouped = inputs[static_cast<std::size_t>(kernel.activations)];
    if (grouped.rows == nullptr) grouped = prepare_grouped(kernel.activations);
    Rows out = term.out;
    out.data += first * out.stride;
    out.n_rows = n_rows;
    // Up to about this many rows, a panel takes as long as reading it from memory.
    constexpr int kRowsForFree = 4;
    const float* const bias = term.biases != nullptr ? term.biases->data() + expert * weight.problem().n : nullptr;
    add({&weight, &kernel, bias, grouped.rows + first * grouped.stride, grouped.stride, out},
        static_cast<std::int64_t>(weight.row_bytes()) * std::max(n_rows, kRowsForFree));
  }
}

void GemmRunner::run_expert_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms) {
  if (x.n_rows == 0) return;
  IMP_CHECK(terms.size() <= kMaxExpertTerms && x.n_rows == rows.n_rows);
  Inputs inputs;
  begin();
  for (const ExpertTerm& term : terms) {
    add_experts(term, rows, inputs, [&](ActivationFormat format) { return prepare_expert_in(x, rows, format); });
  }
  finish();
}

void GemmRunner::run_expert_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term) {
  if (grouped.n_rows == 0) return;
  IMP_CHECK(grouped.n_rows == rows.n_rows * rows.n_used);
  Inputs inputs;
  begin();
  add_experts(term, rows, inputs, [&](ActivationFormat format) { return prepare(grouped, format); });
  finish();
}

}  // namespace imp::cpu
