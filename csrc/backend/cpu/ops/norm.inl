// Sums over one run of elements, and its normalization ("Root Mean Square Layer Normalization", "Layer Normalization").
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

// Four partial sums hide the latency of fma; lane i of sum j holds the elements 64·m + 16·j + i.
inline float sum_of_squares(const float* x, int n) {
  Lanes partial[4] = {zero(), zero(), zero(), zero()};
  for (int i = 0; i < n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      const int at = i + j * kLanes;
      if (at >= n) break;
      const Lanes part = load_up_to(x + at, n - at);
      partial[j] = fma(part, part, partial[j]);
    }
  }
  return sum((partial[0] + partial[1]) + (partial[2] + partial[3]));
}

// The same of products.
float dot(const float* x, const float* y, int n) {
  Lanes partial[4] = {zero(), zero(), zero(), zero()};
  for (int i = 0; i < n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      const int at = i + j * kLanes;
      if (at >= n) break;
      partial[j] = fma(load_up_to(x + at, n - at), load_up_to(y + at, n - at), partial[j]);
    }
  }
  return sum((partial[0] + partial[1]) + (partial[2] + partial[3]));
}

void rms_norm(const float* x, const float* weight, int n, float epsilon, float* out) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const Lanes factor = broadcast(1.0F / __builtin_sqrtf(mean + epsilon));
  if (weight == nullptr) {
    for (int i = 0; i < n; i += kLanes) store_up_to(out + i, load_up_to(x + i, n - i) * factor, n - i);
    return;
  }
  for (int i = 0; i < n; i += kLanes) {
    store_up_to(out + i, load_up_to(x + i, n - i) * factor * load_up_to(weight + i, n - i), n - i);
  }
}

inline float sum_of(const float* x, int n) {
  Lanes partial[4] = {zero(), zero(), zero(), zero()};
  for (int i = 0; i < n; i += 4 * kLanes) {
    for (int j = 0; j < 4; ++j) {
      const int at = i + j * kLanes;
      if (at >= n) break;
      partial[j] = partial[j] + load_up_to(x + at, n - at);
    }
  }
  return sum((partial[0] + partial[1]) + (partial[2] + partial[3]));
}

// The deviations are stored before they are squared, so that the last lanes count as zero.
void layer_norm(const float* x, const float* weight, const float* bias, int n, float epsilon, float* out) {
  const Lanes mean = broadcast(sum_of(x, n) / static_cast<float>(n));
  for (int i = 0; i < n; i += kLanes) store_up_to(out + i, load_up_to(x + i, n - i) - mean, n - i);
  const float variance = sum_of_squares(out, n) / static_cast<float>(n);
  const Lanes factor = broadcast(1.0F / __builtin_sqrtf(variance + epsilon));
  for (int i = 0; i < n; i += kLanes) {
    Lanes normed = load_up_to(out + i, n - i) * factor * load_up_to(weight + i, n - i);
    if (bias != nullptr) normed = normed + load_up_to(bias + i, n - i);
    store_up_to(out + i, normed, n - i);
  }
}

}  // namespace
}  // namespace imp::cpu
