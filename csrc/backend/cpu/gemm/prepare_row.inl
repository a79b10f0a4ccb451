// Preparation of a row of activations, for the instruction set that the including file is compiled for.
#include "backend/cpu/gemm/prepare_row.h"
#include "backend/cpu/gemm/quantized/activation_block.h"
#include "backend/cpu/lanes.h"

namespace imp::cpu {
namespace {

void quantize_block(const float* x, ActivationBlock& out) {
  const Lanes first = load(x), second = load(x + kLanes);
  // The bits of |x| order as |x| does, with Inf and NaN above all: no NaN is lost, as it would be in a float maximum.
  const IntLanes magnitude = broadcast_int(0x7FFFFFFF);
  const std::int32_t max_bits = max_of(max(bits(first) & magnitude, bits(second) & magnitude));
  constexpr std::int32_t kInfinity = 0x7F800000;
  constexpr std::int32_t kSmallest = (127 - 119) << 23;  // the bits of 2^-119
  if (max_bits >= kInfinity || max_bits < kSmallest) {
    store_i8(out.codes, broadcast_int(0));
    store_i8(out.codes + kLanes, broadcast_int(0));
    out.scale = out.scaled_sum = max_bits >= kInfinity ? __builtin_nanf("") : 0.0F;
    out.bias = 0;
    out.half_sums[0] = out.half_sums[1] = 0;
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
  out.half_sums[0] = static_cast<std::int16_t>(low_sum);
  out.half_sums[1] = static_cast<std::int16_t>(high_sum);
}

void quantize_row(const float* x, std::int64_t k, std::byte* out) {
  auto* block = reinterpret_cast<ActivationBlock*>(out);
  for (std::int64_t i = 0; i < k; i += 2 * kLanes) quantize_block(x + i, *block++);
}

void round_row(const float* x, std::int64_t k, std::byte* out) {
  auto* to = reinterpret_cast<std::uint16_t*>(out);
  std::int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) store_bf16(to + i, load(x + i));
  if (i == k) return;
  std::uint16_t last[kLanes];
  store_bf16(last, load_partial(x + i, static_cast<int>(k - i)));
  // Lanes beyond k are zero.
  __builtin_memcpy(to + i, last, static_cast<std::size_t>((k - i + 1) / 2 * 2) * sizeof(std::uint16_t));
}

RowPreparers row_preparers() {
  return {round_row, quantize_row};
}

}  // namespace
}  // namespace imp::cpu
