// Products of four neighbouring codes per lane, added to integer sums.
//
// Key codes come as -128 to 127 plus kKeyOffset, value codes as that plus kValueOffset, so that the instruction can
// multiply them: by query codes of -127 to 127, and by weights of 0 to 255.
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
// Query codes or weights as a word, the same one in each lane.
struct FourCodes {
  IntLanes v;
};
inline FourCodes broadcast_codes(const void* codes) {
  std::int32_t word;
  __builtin_memcpy(&word, codes, sizeof word);
  return {broadcast_int(word)};
}
inline FourCodes broadcast_weights(const std::uint8_t* weights) {
  return broadcast_codes(weights);
}
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
constexpr int kKeyOffset = 128, kValueOffset = 0;
// sums + four bytes (0 to 255) · four codes (-128 to 127).
inline IntLanes add_mixed(IntLanes sums, IntLanes bytes, IntLanes codes) {
#if defined(__AVX512VNNI__)
  return {_mm512_dpbusd_epi32(sums.v, bytes.v, codes.v)};
#else
  return {_mm256_dpbusd_avx_epi32(sums.lo, bytes.lo, codes.lo), _mm256_dpbusd_avx_epi32(sums.hi, bytes.hi, codes.hi)};
#endif
}
inline IntLanes add_codes(IntLanes sums, IntLanes keys, FourCodes query) {
  return add_mixed(sums, keys, query.v);
}
inline IntLanes add_weighted_codes(IntLanes sums, IntLanes values, FourCodes weights) {
  return add_mixed(sums, weights.v, values);
}

#elif defined(__ARM_FEATURE_DOTPROD)
// The instruction multiplies two signed or two unsigned bytes.
constexpr int kKeyOffset = 0, kValueOffset = 128;
inline IntLanes add_codes(IntLanes sums, IntLanes keys, FourCodes query) {
  return each<IntLanes>(
      [&](int i) { return vdotq_s32(sums.v[i], vreinterpretq_s8_s32(keys.v[i]), vreinterpretq_s8_s32(query.v.v[i])); });
}
inline IntLanes add_weighted_codes(IntLanes sums, IntLanes values, FourCodes weights) {
  return each<IntLanes>([&](int i) {
    return vreinterpretq_s32_u32(vdotq_u32(vreinterpretq_u32_s32(sums.v[i]), vreinterpretq_u8_s32(values.v[i]),
                                           vreinterpretq_u8_s32(weights.v.v[i])));
  });
}

#else
constexpr int kKeyOffset = 128, kValueOffset = 128;
struct FourCodes {
  IntLanes even, odd;  // 16-bit halves
};
template <class Code>
inline FourCodes broadcast_halves(const Code* codes) {
  const auto halves = [](int low, int high) { return broadcast_int((low & 0xFFFF) | high * 65536); };
  return {halves(codes[0], codes[2]), halves(codes[1], codes[3])};
}
inline FourCodes broadcast_codes(const std::int8_t* codes) {
  return broadcast_halves(codes);
}
inline FourCodes broadcast_weights(const std::uint8_t* weights) {
  return broadcast_halves(weights);
}
inline IntLanes add_codes(IntLanes sums, IntLanes keys, FourCodes query) {
  const IntLanes bytes = broadcast_int(0x00FF00FF);
  return sums + dot_halves(keys & bytes, query.even) + dot_halves(shift_right_logical<8>(keys) & bytes, query.odd);
}
inline IntLanes add_weighted_codes(IntLanes sums, IntLanes values, FourCodes weights) {
  return add_codes(sums, values, weights);
}
#endif

}  // namespace
}  // namespace imp::cpu
