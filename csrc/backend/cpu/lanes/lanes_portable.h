// Lanes for any processor: the compiler's generic vectors, and loops for missing operators.
#pragma once

#include <cstdint>

namespace imp::cpu {
namespace {

using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Words = std::uint32_t __attribute__((vector_size(64)));

struct Lanes {
  Floats v;
};
struct IntLanes {
  Ints v;
};
struct Mask {
  Ints v;  // -1 or 0 per lane
};

inline Lanes zero() {
  return {Floats{}};
}
inline Lanes broadcast(float x) {
  // Not Floats{} + x, which would lose the sign of -0.
  return {Floats{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}};
}
inline Lanes load(const float* from) {
  Lanes x;
  __builtin_memcpy(&x.v, from, sizeof x.v);
  return x;
}
inline Lanes load_partial(const float* from, int n) {
  Lanes x{Floats{}};
  __builtin_memcpy(&x.v, from, bytes_of_first(n));
  return x;
}
inline void store(float* to, Lanes x) {
  __builtin_memcpy(to, &x.v, sizeof x.v);
}
inline void store_partial(float* to, Lanes x, int n) {
  __builtin_memcpy(to, &x.v, bytes_of_first(n));
}

inline Lanes operator+(Lanes a, Lanes b) {
  return {a.v + b.v};
}
inline Lanes operator-(Lanes a, Lanes b) {
  return {a.v - b.v};
}
inline Lanes operator*(Lanes a, Lanes b) {
  return {a.v * b.v};
}
inline Lanes operator/(Lanes a, Lanes b) {
  return {a.v / b.v};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  for (int i = 0; i < kLanes; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline Lanes sqrt(Lanes x) {
  for (int i = 0; i < kLanes; ++i) x.v[i] = __builtin_sqrtf(x.v[i]);
  return x;
}
inline Lanes min(Lanes a, Lanes b) {
  return {a.v < b.v ? a.v : b.v};
}
inline Lanes max(Lanes a, Lanes b) {
  return {a.v > b.v ? a.v : b.v};
}
inline Lanes round_even(Lanes x) {
  for (int i = 0; i < kLanes; ++i) x.v[i] = __builtin_rintf(x.v[i]);
  return x;
}

inline Mask less(Lanes a, Lanes b) {
  return {a.v < b.v};
}
inline Mask equal(Lanes a, Lanes b) {
  return {a.v == b.v};
}
inline Mask operator&(Mask a, Mask b) {
  return {a.v & b.v};
}
inline Lanes select(Mask mask, Lanes a, Lanes b) {
  return {mask.v ? a.v : b.v};
}
inline IntLanes select(Mask mask, IntLanes a, IntLanes b) {
  return {mask.v ? a.v : b.v};
}
// Lane i as bit i.
inline std::uint32_t mask_bits(Mask mask) {
  std::uint32_t word = 0;
  for (int i = 0; i < kLanes; ++i) word |= static_cast<std::uint32_t>(mask.v[i] & 1) << i;
  return word;
}

inline IntLanes broadcast_int(std::int32_t x) {
  return {Ints{} + x};
}
inline IntLanes load_int(const std::int32_t* from) {
  IntLanes x;
  __builtin_memcpy(&x.v, from, sizeof x.v);
  return x;
}
// from[i % n] in lane i; n is 4, 8 or 16.
template <int n>
inline IntLanes load_repeated(const std::int32_t* from) {
  IntLanes x;
  for (int i = 0; i < kLanes; ++i) x.v[i] = from[i % n];
  return x;
}
inline void store_int(std::int32_t* to, IntLanes x) {
  __builtin_memcpy(to, &x.v, sizeof x.v);
}
inline IntLanes operator+(IntLanes a, IntLanes b) {
  return {(Ints)((Words)a.v + (Words)b.v)};
}
inline IntLanes operator-(IntLanes a, IntLanes b) {
  return {(Ints)((Words)a.v - (Words)b.v)};
}
inline IntLanes operator*(IntLanes a, IntLanes b) {
  return {(Ints)((Words)a.v * (Words)b.v)};
}
// Lanes as two signed 16-bit halves: per lane the sum of their products.
inline IntLanes dot_halves(IntLanes a, IntLanes b) {
  const Ints low_a = (Ints)((Words)a.v << 16) >> 16, low_b = (Ints)((Words)b.v << 16) >> 16;
  return {low_a * low_b + (a.v >> 16) * (b.v >> 16)};
}
inline IntLanes operator&(IntLanes a, IntLanes b) {
  return {a.v & b.v};
}
inline IntLanes operator|(IntLanes a, IntLanes b) {
  return {a.v | b.v};
}
inline IntLanes operator^(IntLanes a, IntLanes b) {
  return {a.v ^ b.v};
}
inline IntLanes max(IntLanes a, IntLanes b) {
  return {a.v > b.v ? a.v : b.v};
}
inline Mask less(IntLanes a, IntLanes b) {
  return {a.v < b.v};
}
inline Mask equal(IntLanes a, IntLanes b) {
  return {a.v == b.v};
}
template <int n>
inline IntLanes shift_left(IntLanes x) {
  return {(Ints)((Words)x.v << n)};
}
// Shifts in the sign.
template <int n>
inline IntLanes shift_right(IntLanes x) {
  return {x.v >> n};
}
// Shifts in zeros.
template <int n>
inline IntLanes shift_right_logical(IntLanes x) {
  return {(Ints)((Words)x.v >> n)};
}

inline IntLanes bits(Lanes x) {
  return {(Ints)x.v};
}
inline Lanes from_bits(IntLanes x) {
  return {(Floats)x.v};
}
// To nearest even; INT32_MIN where the value does not fit.
inline IntLanes to_int(Lanes x) {
  IntLanes out;
  for (int i = 0; i < kLanes; ++i) {
    const bool fits = x.v[i] >= -2147483648.0F && x.v[i] < 2147483648.0F;
    out.v[i] = fits ? static_cast<std::int32_t>(__builtin_rintf(x.v[i])) : INT32_MIN;
  }
  return out;
}
inline Lanes from_int(IntLanes x) {
  return {__builtin_convertvector(x.v, Floats)};
}

// 16 unsigned 16-bit words, widened.
inline IntLanes load_u16(const std::uint16_t* from) {
  IntLanes x;
  for (int i = 0; i < kLanes; ++i) x.v[i] = from[i];
  return x;
}
// 16 bytes, widened.
inline IntLanes load_u8(const std::uint8_t* from) {
  IntLanes x;
  for (int i = 0; i < kLanes; ++i) x.v[i] = from[i];
  return x;
}
// 16 signed bytes, widened.
inline IntLanes load_i8(const std::int8_t* from) {
  IntLanes x;
  for (int i = 0; i < kLanes; ++i) x.v[i] = from[i];
  return x;
}
// 16 pairs of bytes, each byte widened to a signed half of a lane.
inline IntLanes load_i8_pairs(const std::int8_t (&from)[16][2]) {
  IntLanes x;
  for (int i = 0; i < kLanes; ++i) x.v[i] = (from[i][0] & 0xFFFF) | static_cast<std::int32_t>(from[i][1] * 65536);
  return x;
}
// The lower 16 bits of each lane.
inline void store_u16(std::uint16_t* to, IntLanes x) {
  for (int i = 0; i < kLanes; ++i) to[i] = static_cast<std::uint16_t>(x.v[i] & 0xFFFF);
}

// 16-bit storage. Conversions to 16 bits round to nearest even; NaN stays NaN.
inline Lanes load_f16(const std::uint16_t* from) {
  const IntLanes half = load_u16(from);
  const IntLanes sign = shift_left<16>(half & broadcast_int(0x8000));
  const IntLanes magnitude = half & broadcast_int(0x7FFF);
  // A subnormal half is its mantissa times 2^-24: a normal float. The others get a new exponent bias.
  const IntLanes subnormal = bits(from_int(magnitude) * broadcast(0x1p-24F));
  const IntLanes normal = shift_left<13>(magnitude) + broadcast_int((127 - 15) << 23);
  const IntLanes special = shift_left<13>(magnitude) | broadcast_int(0x7F800000);  // infinity, NaN
  const IntLanes quiet = select(less(broadcast_int(0x7C00), magnitude), broadcast_int(0x400000), broadcast_int(0));
  IntLanes out = select(less(magnitude, broadcast_int(0x400)), subnormal, normal);
  out = select(less(magnitude, broadcast_int(0x7C00)), out, special | quiet);
  return from_bits(out | sign);
}
// 16 numbers of F8_E4M3 that are not NaN, scaled by 2^-8.
inline Lanes load_e4m3_scaled(const std::uint8_t* from) {
  const IntLanes code = load_u8(from);
  const IntLanes sign = shift_left<24>(code & broadcast_int(0x80));
  const IntLanes magnitude = code & broadcast_int(0x7F);
  // A subnormal number is its mantissa times 2^-9. The others get a new exponent bias.
  const IntLanes subnormal = bits(from_int(magnitude) * broadcast(0x1p-17F));
  const IntLanes normal = shift_left<20>(magnitude) + broadcast_int((127 - 7 - 8) << 23);
  return from_bits(select(less(magnitude, broadcast_int(8)), subnormal, normal) | sign);
}
inline Lanes broadcast_f16(std::uint16_t x) {
  std::uint16_t copies[kLanes];
  for (std::uint16_t& copy : copies) copy = x;
  return load_f16(copies);
}
inline void store_f16(std::uint16_t* to, Lanes x) {
  for (int i = 0; i < kLanes; ++i) {
    std::uint32_t word;
    const float value = x.v[i];
    __builtin_memcpy(&word, &value, sizeof word);
    const std::uint32_t sign = (word >> 16) & 0x8000U;
    const std::uint32_t magnitude = word & 0x7FFFFFFFU;
    std::uint32_t half;
    if (magnitude > 0x7F800000U) {
      half = 0x7E00U | (magnitude >> 13 & 0x3FFU);
    } else if (magnitude >= 0x477FF000U) {  // 65520 and above round to infinity
      half = 0x7C00U;
    } else if (magnitude < 0x33000001U) {  // 2^-25 and below round to zero
      half = 0;
    } else if (magnitude < 0x38800000U) {  // below 2^-14: a subnormal half, in units of 2^-24
      const std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
      const std::uint32_t shift = 126U - (magnitude >> 23);
      const std::uint32_t rest = mantissa & ((1U << shift) - 1U);
      const std::uint32_t tie = 1U << (shift - 1U);
      half = mantissa >> shift;
      half += static_cast<std::uint32_t>(rest > tie || (rest == tie && (half & 1U)));
    } else {
      half = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
    }
    to[i] = static_cast<std::uint16_t>(sign | half);
  }
}

// The lower 8 bits of each lane.
inline void store_i8(std::int8_t* to, IntLanes x) {
  for (int i = 0; i < kLanes; ++i) to[i] = static_cast<std::int8_t>(x.v[i]);
}

inline float sum(Lanes x) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.v[i] += x.v[i + width];
  }
  return x.v[0];
}
inline float max_of(Lanes x) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
  }
  return x.v[0];
}
inline std::int32_t max_of(IntLanes x) {
  std::int32_t most = x.v[0];
  for (int i = 1; i < kLanes; ++i) most = x.v[i] > most ? x.v[i] : most;
  return most;
}
// Wrapping, as integer sums are.
inline std::int32_t sum(IntLanes x) {
  std::uint32_t total = 0;
  for (int i = 0; i < kLanes; ++i) total += static_cast<std::uint32_t>(x.v[i]);
  return static_cast<std::int32_t>(total);
}

// Lane i gets lane i ^ distance; 1, 2, 4 or 8.
template <int distance>
inline Lanes swap_lanes(Lanes x) {
  Lanes out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = x.v[i ^ distance];
  return out;
}
// table[index], indices 0 to 15.
inline Lanes lookup(const float (&table)[16], IntLanes index) {
  Lanes out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = table[index.v[i]];
  return out;
}
// table[byte] for each byte, 0 to 15, of the lanes.
inline IntLanes lookup_bytes(const std::uint8_t (&table)[16], IntLanes bytes) {
  std::uint8_t each[4 * kLanes];
  __builtin_memcpy(each, &bytes.v, sizeof each);
  for (std::uint8_t& byte : each) byte = table[byte];
  __builtin_memcpy(&bytes.v, each, sizeof each);
  return bytes;
}

}  // namespace
}  // namespace imp::cpu
