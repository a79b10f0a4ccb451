// The inner loops of linear attention: a short convolution, and the gated delta rule row by row.
#pragma once

#include "backend/cpu/lanes/math.h"
#include "backend/cpu/ops/cpu_ops.h"
#include "backend/cpu/ops/norm.inl"
#include "backend/delta_rule.h"
#include "backend/scalar_math.h"

namespace imp::cpu {
namespace {

void multiply_sigmoid(float* x, const float* gates, int n) {
  for (int i = 0; i < n; i += kLanes) {
    store_up_to(x + i, load_up_to(x + i, n - i) * sigmoid(load_up_to(gates + i, n - i)), n - i);
  }
}

void short_conv(const float* const* rows, const float* weight, std::ptrdiff_t weight_stride, int n_rows, int n,
                float* out) {
  for (int i = 0; i < n; i += kLanes) {
    Lanes sum = zero();
    for (int t = 0; t < n_rows; ++t) {
      sum = fma(load_up_to(weight + t * weight_stride + i, n - i), load_up_to(rows[t] + i, n - i), sum);
    }
    store_up_to(out + i, sum / (broadcast(1.0F) + exp(negative(sum))), n - i);
  }
}

void scale_to_length(float* x, int n, float epsilon, float length) {
  const Lanes factor = broadcast(length / __builtin_sqrtf(sum_of_squares(x, n) + epsilon));
  for (int i = 0; i < n; i += kLanes) store_up_to(x + i, load_up_to(x + i, n - i) * factor, n - i);
}

// log(1 + e^x). Beyond 20 it is x in float32. NaN stays NaN.
inline float softplus(float x, float exp_of_x) {
  return x <= 20.0F ? static_cast<float>(log_of(1.0 + static_cast<double>(exp_of_x))) : x;
}

void delta_gates(float* alpha, float* beta, const float* decay_rates, const float* dt_bias, int n) {
  for (int i = 0; i < n; i += kLanes) {
    const int n_heads = n - i < kLanes ? n - i : kLanes;
    const Lanes sum = load_up_to(alpha + i, n - i) + load_up_to(dt_bias + i, n - i);
    float dt[kLanes], exp_of[kLanes];
    store(dt, sum);
    store(exp_of, exp(sum));
    for (int head = 0; head < n_heads; ++head) dt[head] = softplus(dt[head], exp_of[head]);
    store_up_to(alpha + i, exp(load(dt) * load_up_to(decay_rates + i, n - i)), n - i);
    store_up_to(beta + i, sigmoid(load_up_to(beta + i, n - i)), n - i);
  }
}

// Columns of one row of a state.
struct Columns {
  Lanes low, high;
};
template <bool is_full>
inline Columns load_columns(const float* from, int n) {
  if constexpr (is_full) return {load(from), load(from + kLanes)};
  return {load_up_to(from, n), n > kLanes ? load_up_to(from + kLanes, n - kLanes) : zero()};
}
template <bool is_full>
inline void store_columns(float* to, const Columns& x, int n) {
  if constexpr (is_full) {
    store(to, x.low);
    store(to + kLanes, x.high);
  } else {
    store_up_to(to, x.low, n);
    if (n > kLanes) store_up_to(to + kLanes, x.high, n - kLanes);
  }
}
inline Columns multiply_add(Lanes a, const Columns& b, const Columns& c) {
  return {fma(a, b.low, c.low), fma(a, b.high, c.high)};
}
inline Columns operator*(Lanes a, const Columns& b) {
  return {a * b.low, a * b.high};
}
inline Columns operator+(const Columns& a, const Columns& b) {
  return {a.low + b.low, a.high + b.high};
}
inline Columns operator-(const Columns& a, const Columns& b) {
  return {a.low - b.low, a.high - b.high};
}

// A state in memory, at some columns.
struct StateAt {
  const float* from;
  std::ptrdiff_t from_stride;
  float* to;
  std::ptrdiff_t to_stride;
};

// Sums over the key have two parts, of even and of odd elements, to hide the latency of fma.
template <bool is_full>
inline Columns times_key(const float* k, const StateAt& state, int key_dim, int n) {
  Columns even = {zero(), zero()}, odd = even;
  const auto add = [&](int i, Columns& part) {
    part = multiply_add(broadcast(k[i]), load_columns<is_full>(state.from + i * state.from_stride, n), part);
  };
  for (int i = 0; i + 1 < key_dim; i += 2) {
    add(i, even);
    add(i + 1, odd);
  }
  if (key_dim % 2 != 0) add(key_dim - 1, even);
  return even + odd;
}

// Writes decay · S + k · change, and returns its product with q.
template <bool is_full>
inline Columns update(const float* q, const float* k, Lanes decay, const Columns& change, const StateAt& state,
                      int key_dim, int n) {
  Columns even = {zero(), zero()}, odd = even;
  const auto add = [&](int i, Columns& part) {
    const Columns before = load_columns<is_full>(state.from + i * state.from_stride, n);
    const Columns after = multiply_add(broadcast(k[i]), change, decay * before);
    store_columns<is_full>(state.to + i * state.to_stride, after, n);
    part = multiply_add(broadcast(q[i]), after, part);
  };
  for (int i = 0; i + 1 < key_dim; i += 2) {
    add(i, even);
    add(i + 1, odd);
  }
  if (key_dim % 2 != 0) add(key_dim - 1, even);
  return even + odd;
}

// Between rows the state stays in a small array of its own: rows of a state in the pool share few sets of the CPU
// cache.
template <bool is_full>
void run_delta_rule(const DeltaRun& run) {
  alignas(64) float kept[kMaxDeltaKeyDim * kDeltaColumns];
  const int n = is_full ? kDeltaColumns : run.n_columns;
  StateAt state = {run.from, run.value_dim, kept, kDeltaColumns};
  if (run.from == nullptr) {
    for (int i = 0; i < run.key_dim * kDeltaColumns; i += kLanes) store(kept + i, zero());
    state.from = kept;
    state.from_stride = kDeltaColumns;
  }
  for (int row = 0; row < run.n_rows; ++row) {
    if (row + 1 == run.n_rows && run.to != nullptr) {
      state.to = run.to;
      state.to_stride = run.value_dim;
    }
    const float* const k = run.k + row * run.qkv_stride;
    const Lanes decay = broadcast(run.decay[row * run.decay_stride]);
    const Lanes beta = broadcast(run.beta[row * run.beta_stride]);
    const Columns v = load_columns<is_full>(run.v + row * run.qkv_stride, n);
    const Columns change = beta * (v - decay * times_key<is_full>(k, state, run.key_dim, n));
    const Columns out = update<is_full>(run.q + row * run.qkv_stride, k, decay, change, state, run.key_dim, n);
    store_columns<is_full>(run.out + row * run.out_stride, out, n);
    state.from = kept;
    state.from_stride = kDeltaColumns;
  }
}

void delta_rule(const DeltaRun& run) {
  run.n_columns == kDeltaColumns ? run_delta_rule<true>(run) : run_delta_rule<false>(run);
}

}  // namespace
}  // namespace imp::cpu
