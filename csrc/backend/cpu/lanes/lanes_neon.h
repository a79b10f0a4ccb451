// Lanes in four registers of AArch64's Advanced SIMD, which every such processor has.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace imp::cpu {
namespace {

struct Lanes {
  float32x4_t v[4];
};
struct IntLanes {
  int32x4_t v[4];
};
struct Mask {
  uint32x4_t v[4];  // all ones or all zeros per lane
};

// An operation on each register.
template <class Out, class Op>
[[gnu::always_inline]] inline Out each(Op op) {
  return {{op(0), op(1), op(2), op(3)}};
}

inline Lanes broadcast(float x) {
  return each<Lanes>([=](int) { return vdupq_n_f32(x); });
}
inline Lanes zero() {
  return broadcast(0.0F);
}
inline Lanes load(const float* from) {
  return each<Lanes>([=](int i) { return vld1q_f32(from + 4 * i); });
}
inline void store(float* to, Lanes x) {
  vst1q_f32(to, x.v[0]);
  vst1q_f32(to + 4, x.v[1]);
  vst1q_f32(to + 8, x.v[2]);
  vst1q_f32(to + 12, x.v[3]);
}
inline Lanes load_partial(const float* from, int n) {
  float all[kLanes] = {};
  __builtin_memcpy(all, from, bytes_of_first(n));
  return load(all);
}
inline void store_partial(float* to, Lanes x, int n) {
  float all[kLanes];
  store(all, x);
  __builtin_memcpy(to, all, bytes_of_first(n));
}

inline Lanes operator+(Lanes a, Lanes b) {
  return each<Lanes>([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
inline Lanes operator-(Lanes a, Lanes b) {
  return each<Lanes>([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
inline Lanes operator*(Lanes a, Lanes b) {
  return each<Lanes>([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
inline Lanes operator/(Lanes a, Lanes b) {
  return each<Lanes>([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return each<Lanes>([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
inline Lanes sqrt(Lanes x) {
  return each<Lanes>([&](int i) { return vsqrtq_f32(x.v[i]); });
}
inline Lanes round_even(Lanes x) {
  return each<Lanes>([&](int i) { return vrndnq_f32(x.v[i]); });
}

inline Mask less(Lanes a, Lanes b) {
  return each<Mask>([&](int i) { return vcltq_f32(a.v[i], b.v[i]); });
}
inline Mask equal(Lanes a, Lanes b) {
  return each<Mask>([&](int i) { return vceqq_f32(a.v[i], b.v[i]); });
}
inline Mask operator&(Mask a, Mask b) {
  return each<Mask>([&](int i) { return vandq_u32(a.v[i], b.v[i]); });
}
inline Lanes select(Mask mask, Lanes a, Lanes b) {
  return each<Lanes>([&](int i) { return vbslq_f32(mask.v[i], a.v[i], b.v[i]); });
}
inline IntLanes select(Mask mask, IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) { return vbslq_s32(mask.v[i], a.v[i], b.v[i]); });
}
// Lane i as bit i.
inline std::uint32_t mask_bits(Mask mask) {
  constexpr std::uint32_t kBits[4] = {1, 2, 4, 8};
  const uint32x4_t four = vld1q_u32(kBits);
  const auto part = [&](int i) { return vaddvq_u32(vandq_u32(mask.v[i], four)) << (4 * i); };
  return part(0) | part(1) | part(2) | part(3);
}

// Not vminq and vmaxq, which return NaN if either operand is NaN and order -0 below +0.
inline Lanes min(Lanes a, Lanes b) {
  return select(less(a, b), a, b);
}
inline Lanes max(Lanes a, Lanes b) {
  return select(less(b, a), a, b);
}

inline IntLanes broadcast_int(std::int32_t x) {
  return each<IntLanes>([=](int) { return vdupq_n_s32(x); });
}
inline IntLanes load_int(const std::int32_t* from) {
  return each<IntLanes>([=](int i) { return vld1q_s32(from + 4 * i); });
}
// from[i % n] in lane i; n is 4, 8 or 16.
template <int n>
inline IntLanes load_repeated(const std::int32_t* from) {
  return each<IntLanes>([=](int i) { return vld1q_s32(from + 4 * i % n); });
}
inline void store_int(std::int32_t* to, IntLanes x) {
  vst1q_s32(to, x.v[0]);
  vst1q_s32(to + 4, x.v[1]);
  vst1q_s32(to + 8, x.v[2]);
  vst1q_s32(to + 12, x.v[3]);
}
inline IntLanes operator+(IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
}
inline IntLanes operator-(IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) { return vsubq_s32(a.v[i], b.v[i]); });
}
inline IntLanes operator*(IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) { return vmulq_s32(a.v[i], b.v[i]); });
}
// Lanes as two signed 16-bit halves: per lane the sum of their products.
inline IntLanes dot_halves(IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) {
    const int16x8_t x = vreinterpretq_s16_s32(a.v[i]), y = vreinterpretq_s16_s32(b.v[i]);
    return vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y));
  });
}
inline IntLanes operator&(IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) { return vandq_s32(a.v[i], b.v[i]); });
}
inline IntLanes operator|(IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) { return vorrq_s32(a.v[i], b.v[i]); });
}
inline IntLanes operator^(IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) { return veorq_s32(a.v[i], b.v[i]); });
}
inline IntLanes max(IntLanes a, IntLanes b) {
  return each<IntLanes>([&](int i) { return vmaxq_s32(a.v[i], b.v[i]); });
}
inline Mask less(IntLanes a, IntLanes b) {
  return each<Mask>([&](int i) { return vcltq_s32(a.v[i], b.v[i]); });
}
inline Mask equal(IntLanes a, IntLanes b) {
  return each<Mask>([&](int i) { return vceqq_s32(a.v[i], b.v[i]); });
}
template <int n>
inline IntLanes shift_left(IntLanes x) {
  return each<IntLanes>([&](int i) { return vshlq_n_s32(x.v[i], n); });
}
// Shifts in the sign. n may be 0, which the instruction cannot encode.
template <int n>
inline IntLanes shift_right(IntLanes x) {
  if constexpr (n == 0) return x;
  return each<IntLanes>([&](int i) { return vshrq_n_s32(x.v[i], n > 0 ? n : 1); });
}
// Shifts in zeros.
template <int n>
inline IntLanes shift_right_logical(IntLanes x) {
  if constexpr (n == 0) return x;
  return each<IntLanes>(
      [&](int i) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x.v[i]), n > 0 ? n : 1)); });
}

inline IntLanes bits(Lanes x) {
  return each<IntLanes>([&](int i) { return vreinterpretq_s32_f32(x.v[i]); });
}
inline Lanes from_bits(IntLanes x) {
  return each<Lanes>([&](int i) { return vreinterpretq_f32_s32(x.v[i]); });
}
// To nearest even; INT32_MIN if the value does not fit. The instruction saturates, with 0 for NaN.
inline IntLanes to_int(Lanes x) {
  const Mask is_below = less(x, broadcast(0x1p31F));
  const IntLanes nearest = each<IntLanes>([&](int i) { return vcvtnq_s32_f32(x.v[i]); });
  return select(is_below, nearest, broadcast_int(INT32_MIN));
}
inline Lanes from_int(IntLanes x) {
  return each<Lanes>([&](int i) { return vcvtq_f32_s32(x.v[i]); });
}

// 16-bit storage. Conversions to 16 bits round to nearest even; NaN stays NaN.
inline Lanes load_f16(const std::uint16_t* from) {
  return each<Lanes>([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + 4 * i))); });
}
inline Lanes broadcast_f16(std::uint16_t x) {
  const float32x4_t four = vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(x)));
  return {{four, four, four, four}};
}
inline void store_f16(std::uint16_t* to, Lanes x) {
  vst1q_u16(to, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.v[0]), x.v[1])));
  vst1q_u16(to + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.v[2]), x.v[3])));
}
// 16 unsigned 16-bit words, widened.
inline IntLanes load_u16(const std::uint16_t* from) {
  return each<IntLanes>([=](int i) { return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(from + 4 * i))); });
}
// 16 bytes, widened.
inline IntLanes load_u8(const std::uint8_t* from) {
  const uint8x16_t bytes = vld1q_u8(from);
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_high_u16(low)),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_high_u16(high))}};
}
// 16 numbers of F8_E4M3 that are not NaN, scaled by 2^-8: then they are half floats with the same bits after the sign.
inline Lanes load_e4m3_scaled(const std::uint8_t* from) {
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(from));
  const auto halves = [](int16x8_t words) {
    return vreinterpretq_f16_u16(vandq_u16(vreinterpretq_u16_s16(vshlq_n_s16(words, 7)), vdupq_n_u16(0xBF80)));
  };
  const float16x8_t low = halves(vmovl_s8(vget_low_s8(bytes))), high = halves(vmovl_high_s8(bytes));
  return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
           vcvt_high_f32_f16(high)}};
}
// 16 signed bytes, widened.
inline IntLanes load_i8(const std::int8_t* from) {
  const int8x16_t bytes = vld1q_s8(from);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return {{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}};
}
// 16 pairs of bytes, each byte widened to a signed half of a lane.
inline IntLanes load_i8_pairs(const std::int8_t (&from)[16][2]) {
  return each<IntLanes>([&](int i) { return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(from[4 * i]))); });
}
// The lower 16 bits of each lane, as two registers.
inline uint16x8_t low_words(int32x4_t first, int32x4_t second) {
  return vuzp1q_u16(vreinterpretq_u16_s32(first), vreinterpretq_u16_s32(second));
}
inline void store_u16(std::uint16_t* to, IntLanes x) {
  vst1q_u16(to, low_words(x.v[0], x.v[1]));
  vst1q_u16(to + 8, low_words(x.v[2], x.v[3]));
}

// The lower 8 bits of each lane.
inline void store_i8(std::int8_t* to, IntLanes x) {
  const int8x16_t first = vreinterpretq_s8_u16(low_words(x.v[0], x.v[1]));
  vst1q_s8(to, vuzp1q_s8(first, vreinterpretq_s8_u16(low_words(x.v[2], x.v[3]))));
}

inline float sum(Lanes x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float max_of(Lanes x) {
  const auto greater = [](float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); };
  const float32x4_t four = greater(greater(x.v[0], x.v[2]), greater(x.v[1], x.v[3]));
  const float32x4_t two = greater(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(greater(two, vextq_f32(two, two, 1)), 0);
}
inline std::int32_t max_of(IntLanes x) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.v[0], x.v[2]), vmaxq_s32(x.v[1], x.v[3])));
}
// Wrapping, as integer sums are.
inline std::int32_t sum(IntLanes x) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[2]), vaddq_s32(x.v[1], x.v[3])));
}

// Lane i gets lane i ^ distance; 1, 2, 4 or 8.
template <int distance>
inline Lanes swap_lanes(Lanes x) {
  if constexpr (distance == 1) return each<Lanes>([&](int i) { return vrev64q_f32(x.v[i]); });
  if constexpr (distance == 2) return each<Lanes>([&](int i) { return vextq_f32(x.v[i], x.v[i], 2); });
  if constexpr (distance == 4) return {{x.v[1], x.v[0], x.v[3], x.v[2]}};
  if constexpr (distance == 8) return {{x.v[2], x.v[3], x.v[0], x.v[1]}};
}
// table[index], indices 0 to 15.
inline Lanes lookup(const float (&table)[16], IntLanes index) {
  const uint8x16x4_t levels = vld1q_u8_x4(reinterpret_cast<const std::uint8_t*>(table));
  const int32x4_t all_bytes = vdupq_n_s32(0x04040404), offsets = vdupq_n_s32(0x03020100);
  return each<Lanes>([&](int i) {
    const int32x4_t bytes = vmlaq_s32(offsets, index.v[i], all_bytes);
    return vreinterpretq_f32_u8(vqtbl4q_u8(levels, vreinterpretq_u8_s32(bytes)));
  });
}
// table[byte] for each byte, 0 to 15, of the lanes.
inline IntLanes lookup_bytes(const std::uint8_t (&table)[16], IntLanes bytes) {
  const uint8x16_t levels = vld1q_u8(table);
  return each<IntLanes>(
      [&](int i) { return vreinterpretq_s32_u8(vqtbl1q_u8(levels, vreinterpretq_u8_s32(bytes.v[i]))); });
}

}  // namespace
}  // namespace imp::cpu
