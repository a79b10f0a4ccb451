// The number of the arithmetic: two builds with the same number compute the same bits of a model.
#pragma once

namespace imp {

// Raise it with each change of the bits of a logit or of the token of a draw, by whatever kernel, op, layer or sampler.
// Servers with different numbers do not go on with each other's streams. tests/determinism/test_arithmetic_revision.py
// compares stored digests with it; docs/extending.md says how to change it.
inline constexpr int kArithmeticRevision = 2;

}  // namespace imp
