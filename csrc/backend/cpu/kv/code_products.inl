// Products of four neighbouring codes per lane, added to integer sums.
#pragma once

#include "backend/cpu/lanes/lanes.h"

namespace imp::cpu {
namespace {

#if defined(__AVX512VNNI__)
struct FourCodes {
  IntLanes v;
};
inline FourCodes broadcast_codes(const std::int8_t* codes) {
  std::int32_t word;
  __builtin_memcpy(&word, codes, sizeof word);
  return {broadcast_int(word)};
}
// sums + codes (0 to 255) · four query codes (-127 to 127).
inline IntLanes add_codes(IntLanes sums, IntLanes codes, FourCodes query) {
  return {_mm512_dpbusd_epi32(sums.v, codes.v, query.v.v)};
}

// Four weights, 0 to 255.
inline FourCodes broadcast_weights(const std::uint8_t* weights) {
  return broadcast_codes(reinterpret_cast<const std::int8_t*>(weights));
}
// sums + codes (-127 to 127, plus kCodeOffset) · four weights.
inline IntLanes add_weighted_codes(IntLanes sums, IntLanes codes, FourCodes weights) {
  return {_mm512_dpbusd_epi32(sums.v, weights.v.v, codes.v)};
}
constexpr int kCodeOffset = 0;
#else
struct FourCodes {
  IntLanes even, odd;  // 16-bit halves
};
inline FourCodes broadcast_codes(const std::int8_t* codes) {
  const auto halves = [](int low, int high) { return broadcast_int((low & 0xFFFF) | high * 65536); };
  return {halves(codes[0], codes[2]), halves(codes[1], codes[3])};
}
inline IntLanes add_codes(IntLanes sums, IntLanes codes, FourCodes query) {
  const IntLanes bytes = broadcast_int(0x00FF00FF);
  return sums + dot_halves(codes & bytes, query.even) + dot_halves(shift_right_logical<8>(codes) & bytes, query.odd);
}

inline FourCodes broadcast_weights(const std::uint8_t* weights) {
  const auto halves = [](int low, int high) { return broadcast_int(low | high * 65536); };
  return {halves(weights[0], weights[2]), halves(weights[1], weights[3])};
}
inline IntLanes add_weighted_codes(IntLanes sums, IntLanes codes, FourCodes weights) {
  return add_codes(sums, codes, weights);
}
constexpr int kCodeOffset = 128;
#endif

}  // namespace
}  // namespace imp::cpu
