// Prepares a row of activations.
#include "backend/cpu/gemm/prepare_row.h"
#include "backend/cpu/gemm/quantized/quantize_block.inl"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

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
  __builtin_memcpy(to + i, last, static_cast<std::size_t>(round_up(k - i, 2)) * sizeof(std::uint16_t));
}

RowPreparers row_preparers() {
  return {round_row, quantize_row};
}

}  // namespace
}  // namespace imp::cpu
