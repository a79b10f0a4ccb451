// Elementwise ops.
#pragma once

#include "backend/cpu/lanes/math.h"
#include "backend/cpu/ops/cpu_ops.h"

namespace imp::cpu {
namespace {

void silu(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; i += kLanes) {
    const Lanes g = load_up_to(gate + i, n - i);
    const Lanes activated = g / (broadcast(1.0F) + exp(negative(g)));
    store_up_to(out + i, activated * load_up_to(up + i, n - i), n - i);
  }
}

// 0.5 · g · (1 + tanh(sqrt(2/π) · (g + 0.044715 · g³)))
inline Lanes gelu_tanh(Lanes g) {
  const Lanes cubic = fma(g * g * g, broadcast(0.044715F), g);
  const Lanes bent = broadcast(1.0F) + tanh(cubic * broadcast(0.797884561F));
  return broadcast(0.5F) * g * bent;
}

void gelu_tanh(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; i += kLanes) {
    store_up_to(out + i, gelu_tanh(load_up_to(gate + i, n - i)) * load_up_to(up + i, n - i), n - i);
  }
}

// A NaN stays one: min() and max() return their second operand.
void clamped_silu(const float* gate, const float* up, int n, float limit, float slope, float* out) {
  const Lanes most = broadcast(limit), one = broadcast(1.0F);
  for (int i = 0; i < n; i += kLanes) {
    const Lanes g = min(most, load_up_to(gate + i, n - i));
    const Lanes u = max(negative(most), min(most, load_up_to(up + i, n - i)));
    const Lanes activated = g / (one + exp(negative(g * broadcast(slope))));
    store_up_to(out + i, activated * (u + one), n - i);
  }
}

void plain_gelu_tanh(float* x, int n) {
  for (int i = 0; i < n; i += kLanes) store_up_to(x + i, gelu_tanh(load_up_to(x + i, n - i)), n - i);
}

// 0.5 · x · (1 + erf(x / sqrt(2)))
inline Lanes gelu_erf(Lanes x) {
  const Lanes bent = broadcast(1.0F) + erf(x * broadcast(0.707106781F));
  return broadcast(0.5F) * x * bent;
}

void gelu_erf(float* x, int n) {
  for (int i = 0; i < n; i += kLanes) store_up_to(x + i, gelu_erf(load_up_to(x + i, n - i)), n - i);
}

void gated_gelu_erf(const float* gate, const float* up, int n, float* out) {
  for (int i = 0; i < n; i += kLanes) {
    store_up_to(out + i, gelu_erf(load_up_to(gate + i, n - i)) * load_up_to(up + i, n - i), n - i);
  }
}

// A NaN stays one: max() returns its second operand.
void relu_squared(float* x, int n) {
  for (int i = 0; i < n; i += kLanes) {
    const Lanes positive = max(zero(), load_up_to(x + i, n - i));
    store_up_to(x + i, positive * positive, n - i);
  }
}

void plain_tanh(float* x, int n) {
  for (int i = 0; i < n; i += kLanes) store_up_to(x + i, tanh(load_up_to(x + i, n - i)), n - i);
}

void xielu(float* x, int n, const XieluParams& params) {
  for (int i = 0; i < n; i += kLanes) {
    const Lanes from = load_up_to(x + i, n - i);
    const Lanes above = from * from * broadcast(params.positive);
    const Lanes decayed = exp(min(from, broadcast(params.largest))) - broadcast(1.0F);
    const Lanes below = (decayed - from) * broadcast(params.negative);
    const Lanes bent = select(less(zero(), from), above, below);
    store_up_to(x + i, fma(from, broadcast(params.slope), bent), n - i);
  }
}

void add(float* x, const float* y, int n) {
  for (int i = 0; i < n; i += kLanes) store_up_to(x + i, load_up_to(x + i, n - i) + load_up_to(y + i, n - i), n - i);
}

void add_gated(float* x, const float* y, int n, float gate) {
  const Lanes factor = sigmoid(broadcast(gate));
  for (int i = 0; i < n; i += kLanes) {
    store_up_to(x + i, fma(factor, load_up_to(y + i, n - i), load_up_to(x + i, n - i)), n - i);
  }
}

void scale(float* x, int n, float factor) {
  for (int i = 0; i < n; i += kLanes) store_up_to(x + i, load_up_to(x + i, n - i) * broadcast(factor), n - i);
}

// A NaN stays one: min() and max() return their second operand.
void clamp(const float* x, int n, float low, float high, float* out) {
  for (int i = 0; i < n; i += kLanes) {
    store_up_to(out + i, max(broadcast(low), min(broadcast(high), load_up_to(x + i, n - i))), n - i);
  }
}

void standardize(float* x, const float* mean, const float* factors, int n) {
  for (int i = 0; i < n; i += kLanes) {
    const Lanes centred = load_up_to(x + i, n - i) - load_up_to(mean + i, n - i);
    store_up_to(x + i, centred * load_up_to(factors + i, n - i), n - i);
  }
}

inline Lanes capped(Lanes x, Lanes cap) {
  return cap * tanh(x / cap);
}

void soft_cap(float* x, int n, float cap) {
  for (int i = 0; i < n; i += kLanes) store_up_to(x + i, capped(load_up_to(x + i, n - i), broadcast(cap)), n - i);
}

}  // namespace
}  // namespace imp::cpu
