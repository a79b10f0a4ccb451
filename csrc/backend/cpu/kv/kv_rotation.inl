// The rotation of a head's row: signs, a Walsh-Hadamard transform, and signs again, for each group of its elements.
// After it, the elements of any row are nearly Gaussian, so that few levels represent them well ("QuIP#: Even Better
// LLM Quantization with Hadamard Incoherence and Lattice Codebooks"). It is orthogonal: a rotated query has the same
// product with a rotated key.
#pragma once

#include "backend/cpu/lanes/lanes.h"
#include "backend/kv_types.h"

namespace imp::cpu {
namespace {

constexpr int kMaxRotation = 128;

// The greatest power of two that divides head_dim, at most kMaxRotation.
constexpr int rotation_group(int head_dim) {
  const int power = head_dim & -head_dim;
  return power < kMaxRotation ? power : kMaxRotation;
}

struct RotationSigns {
  float v[kMaxRotation];
};
// -1 where the top bit of splitmix64(first seed + i) is set.
constexpr RotationSigns rotation_signs(std::uint64_t first_seed) {
  RotationSigns signs = {};
  for (std::uint64_t i = 0; i < kMaxRotation; ++i) {
    std::uint64_t x = first_seed + i + 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    x ^= x >> 31;
    signs.v[i] = x >> 63 != 0 ? -1.0F : 1.0F;
  }
  return signs;
}
constexpr RotationSigns kSignsBefore = rotation_signs(kMaxRotation), kSignsAfter = rotation_signs(2 * kMaxRotation);

// (a, b) -> (a + b, a - b) for lanes `distance` apart.
template <int distance>
inline Lanes butterfly(Lanes x, Lanes signs) {
  return fma(x, signs, swap_lanes<distance>(x));
}

constexpr float kButterflySigns[4][kLanes] = {
    {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
    {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
    {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
    {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
};

// out = x · before, transformed, · after / sqrt(n). `out` may be x. Distances ascend, so that every instruction set
// computes the same bits.
inline void transform_group(const float* x, int n, const float* before, const float* after, float* out) {
  const Lanes signs[4] = {load(kButterflySigns[0]), load(kButterflySigns[1]), load(kButterflySigns[2]),
                          load(kButterflySigns[3])};
  for (int d = 0; d < n; d += kLanes) {
    Lanes part = load(x + d) * load(before + d);
    part = butterfly<1>(part, signs[0]);
    part = butterfly<2>(part, signs[1]);
    part = butterfly<4>(part, signs[2]);
    store(out + d, butterfly<8>(part, signs[3]));
  }
  for (int distance = kLanes; distance < n; distance *= 2) {
    for (int pair = 0; pair < n; pair += 2 * distance) {
      for (int d = pair; d < pair + distance; d += kLanes) {
        const Lanes a = load(out + d), b = load(out + d + distance);
        store(out + d, a + b);
        store(out + d + distance, a - b);
      }
    }
  }
  const Lanes factor = broadcast(n == 128 ? 0.08838834764F : n == 64 ? 0.125F : 0.1767766953F);  // 1 / sqrt(n)
  for (int d = 0; d < n; d += kLanes) store(out + d, load(out + d) * factor * load(after + d));
}

inline void rotate_group(const float* x, int n, float* out) {
  transform_group(x, n, kSignsBefore.v, kSignsAfter.v, out);
}

void rotate_back(float* head, int head_dim) {
  const int n = rotation_group(head_dim);
  for (int d = 0; d < head_dim; d += n) transform_group(head + d, n, kSignsAfter.v, kSignsBefore.v, head + d);
}

}  // namespace
}  // namespace imp::cpu
