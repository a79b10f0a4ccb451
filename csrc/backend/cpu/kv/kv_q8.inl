// Blocks of q8_0.
#pragma once

#include "backend/cpu/lanes/lanes.h"
#include "backend/kv_types.h"

namespace imp::cpu {
namespace {

// The codes use the scale as rounded for storage.
struct Q8Block {
  std::int8_t codes[kKvBlock];
  std::uint16_t scale;
};

inline void quantize_for_cache(const float* x, Q8Block& out) {
  const Lanes first = load(x), second = load(x + kLanes);
  const IntLanes magnitude = broadcast_int(0x7FFFFFFF);
  const std::int32_t max_bits = max_of(max(bits(first) & magnitude, bits(second) & magnitude));
  const float largest = __builtin_bit_cast(float, max_bits);
  std::uint16_t scales[kLanes];
  store_f16(scales, broadcast(largest / 127.0F));
  out.scale = scales[0];
  float stored[kLanes];
  store(stored, broadcast_f16(out.scale));
  // A block of zeros, or one whose scale is not finite, gets codes 0. The scale is then infinity or NaN and so marks
  // the block.
  const bool has_codes = stored[0] > 0 && stored[0] < __builtin_inff();
  const Lanes inverse = broadcast(has_codes ? 1.0F / stored[0] : 0.0F);
  const auto code = [&](Lanes part) {
    const Lanes most = broadcast(127.0F);
    const Lanes scaled = has_codes ? part * inverse : zero();
    return to_int(min(most, max(zero() - most, scaled)));
  };
  store_i8(out.codes, code(first));
  store_i8(out.codes + kLanes, code(second));
}

}  // namespace
}  // namespace imp::cpu
