#include "backend/cpu/ops/clusters.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tensor/dtype.h"

namespace imp::cpu {

void find_greatest(const float* values, int n, std::span<int> greatest) {
  const auto is_after = [&](int i, int last) {
    if (std::isnan(values[i])) return false;
    return last < 0 || values[i] < values[last] || (values[i] == values[last] && i > last);
  };
  int last = -1;
  for (int& next : greatest) {
    int best = -1;
    for (int i = 0; i < n; ++i) {
      if (is_after(i, last) && (best < 0 || values[i] > values[best])) best = i;
    }
    next = last = std::max(best, 0);
  }
}

float product_of_row(const CpuOps& ops, const CpuLinear& weight, std::int64_t row, const float* x, std::byte* scratch) {
  constexpr std::int64_t kPart = 256;
  weight.read_row(row, scratch);
  const DTypeTraits& type = traits(weight.problem().weight);
  std::array<float, kPart> part;
  float total = 0;
  for (std::int64_t at = 0; at < weight.problem().k; at += kPart) {
    const std::int64_t n = std::min(kPart, weight.problem().k - at);
    type.dequantize(scratch + at / type.block_elements * type.block_bytes, part.data(), n / type.block_elements);
    total += ops.dot(x + at, part.data(), static_cast<int>(n));
  }
  return total;
}

}  // namespace imp::cpu
