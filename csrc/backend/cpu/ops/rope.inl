// RoPE: the angles of one row, and the rotation of one head.
#pragma once

#include "backend/cpu/lanes/math.h"
#include "backend/cpu/ops/cpu_ops.h"
#include "backend/scalar_math.h"

namespace imp::cpu {
namespace {

// In double precision: at position 2^24 the angle in float would be off by a whole radian.
inline void set_angle(std::int32_t position, double frequency, float magnitude, float& cosine, float& sine) {
  const SinCos angle = sin_cos(static_cast<double>(position) * frequency);
  cosine = static_cast<float>(angle.cos * static_cast<double>(magnitude));
  sine = static_cast<float>(angle.sin * static_cast<double>(magnitude));
}

void rope_angles(std::int32_t position, const double* frequencies, int n_pairs, float magnitude, float* out) {
  for (int i = 0; i < n_pairs; ++i) set_angle(position, frequencies[i], magnitude, out[i], out[n_pairs + i]);
}

void rope_planes(const PlanePositions& at, const double* frequencies, int n_pairs, float magnitude, float* out) {
  for (int i = 0; i < n_pairs; ++i) {
    const std::int32_t position = at.first[at.planes[i] * at.stride];
    set_angle(position, frequencies[i], magnitude, out[i], out[n_pairs + i]);
  }
}

void rope_adjacent(float* head, const float* angles, int n_pairs) {
  const float* cosines = angles;
  const float* sines = angles + n_pairs;
  for (int i = 0; i < n_pairs; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = __builtin_fmaf(a, cosines[i], -(b * sines[i]));
    head[2 * i + 1] = __builtin_fmaf(a, sines[i], b * cosines[i]);
  }
}

void rope_halves(float* head, const float* angles, int n_pairs) {
  for (int i = 0; i < n_pairs; i += kLanes) {
    const int n = n_pairs - i;
    const Lanes cosine = load_up_to(angles + i, n);
    const Lanes sine = load_up_to(angles + n_pairs + i, n);
    const Lanes a = load_up_to(head + i, n);
    const Lanes b = load_up_to(head + n_pairs + i, n);
    store_up_to(head + i, fma(a, cosine, negative(b * sine)), n);
    store_up_to(head + n_pairs + i, fma(a, sine, b * cosine), n);
  }
}

}  // namespace
}  // namespace imp::cpu
