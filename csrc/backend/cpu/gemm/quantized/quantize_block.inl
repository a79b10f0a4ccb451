// Quantizes 32 activations.
#pragma once

#include "backend/cpu/gemm/quantized/activation_block.h"
#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

inline void quantize_block(const float* x, ActivationBlock& out) {
  const Lanes first = load(x), second = load(x + kLanes);
  // The bits of |x| have its order, with Inf and NaN above all. So NaN is not lost, as it would be in a float maximum.
  const IntLanes magnitude = broadcast_int(0x7FFFFFFF);
  const std::int32_t max_bits = max_of(max(bits(first) & magnitude, bits(second) & magnitude));
  constexpr std::int32_t kInfinity = 0x7F800000;
  constexpr std::int32_t kSmallest = (127 - 119) << 23;  // the bits of 2^-119
  if (max_bits >= kInfinity || max_bits < kSmallest) {
    store_i8(out.codes, broadcast_int(0));
    store_i8(out.codes + kLanes, broadcast_int(0));
    out.scale = out.scaled_sum = max_bits >= kInfinity ? __builtin_nanf("") : 0.0F;
    out.bias = out.half_biases[0] = out.half_biases[1] = 0;
    return;
  }
  const float max_value = __builtin_bit_cast(float, max_bits);
  const Lanes inverse = broadcast(127.0F / max_value);
  const IntLanes low = to_int(first * inverse), high = to_int(second * inverse);
  store_i8(out.codes, low);
  store_i8(out.codes + kLanes, high);
  out.scale = max_value / 127.0F;
  const std::int32_t low_sum = sum(low), high_sum = sum(high);
  out.scaled_sum = out.scale * static_cast<float>(low_sum + high_sum);
  out.bias = -128 * (low_sum + high_sum);
  out.half_biases[0] = -32 * low_sum;
  out.half_biases[1] = -32 * high_sum;
}

}  // namespace
}  // namespace imp::cpu
