// Binds the operands of a product: every backend checks them here before its kernels run.
#pragma once

#include "backend/backend.h"
#include "backend/rows.h"
#include "base/error.h"

namespace imp {

// Kernels take the widths from the weight alone. Rows of another width would be read or written beyond their ends.
inline void check_product(const Linear& weight, const Vector* bias, const Rows& x, const Rows& out) {
  const GemmProblem& problem = weight.problem();
  IMP_CHECK(x.width == problem.k && out.width == problem.n);
  IMP_CHECK(bias == nullptr || bias->size() == problem.n);
}

inline void check_product(const LinearTerm& term, const Rows& x) {
  check_product(*term.weight, term.bias, x, term.out);
}

inline void check_product(const GatedTerm& term, const Rows& x) {
  check_product(*term.gate, term.gate_bias, x, term.out);
  check_product(*term.up, term.up_bias, x, term.out);
}

// The weights of all experts have one shape.
inline void check_product(const ExpertTerm& term, const Rows& x) {
  check_product(*term.weights.front(), nullptr, x, term.out);
  IMP_CHECK(term.biases == nullptr || term.biases->size() == term.out.width * static_cast<int>(term.weights.size()));
}

}  // namespace imp
