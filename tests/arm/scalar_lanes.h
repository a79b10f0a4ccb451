// Scalar code for the operations of lanes.h, by the definitions in its comments. Every instruction set must equal it.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace imp::cpu {
namespace {

struct Lanes {
  std::array<float, 16> v;
};
struct IntLanes {
  std::array<std::int32_t, 16> v;
};
struct Mask {
  std::array<bool, 16> v;
};

template <class Out, class Op>
Out of_each(Op op) {
  Out out{};
  for (std::size_t i = 0; i < 16; ++i) out.v[i] = op(i);
  return out;
}

std::int32_t wrapped(std::int64_t x) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(x));
}

Lanes broadcast(float x) {
  return of_each<Lanes>([&](std::size_t) { return x; });
}
Lanes zero() {
  return broadcast(0);
}
Lanes load(const float* from) {
  return of_each<Lanes>([&](std::size_t i) { return from[i]; });
}
Lanes load_partial(const float* from, int n) {
  return of_each<Lanes>([&](std::size_t i) { return static_cast<int>(i) < n ? from[i] : 0.0F; });
}
void store_partial(float* to, const Lanes& x, int n) {
  for (int i = 0; i < n; ++i) to[i] = x.v[static_cast<std::size_t>(i)];
}
void store(float* to, const Lanes& x) {
  store_partial(to, x, 16);
}
Lanes operator+(const Lanes& a, const Lanes& b) {
  return of_each<Lanes>([&](std::size_t i) { return a.v[i] + b.v[i]; });
}
Lanes operator-(const Lanes& a, const Lanes& b) {
  return of_each<Lanes>([&](std::size_t i) { return a.v[i] - b.v[i]; });
}
Lanes operator*(const Lanes& a, const Lanes& b) {
  return of_each<Lanes>([&](std::size_t i) { return a.v[i] * b.v[i]; });
}
Lanes operator/(const Lanes& a, const Lanes& b) {
  return of_each<Lanes>([&](std::size_t i) { return a.v[i] / b.v[i]; });
}
Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  return of_each<Lanes>([&](std::size_t i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
Lanes sqrt(const Lanes& x) {
  return of_each<Lanes>([&](std::size_t i) { return std::sqrt(x.v[i]); });
}
Lanes min(const Lanes& a, const Lanes& b) {
  return of_each<Lanes>([&](std::size_t i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
Lanes max(const Lanes& a, const Lanes& b) {
  return of_each<Lanes>([&](std::size_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
Lanes round_even(const Lanes& x) {
  return of_each<Lanes>([&](std::size_t i) { return std::nearbyint(x.v[i]); });
}
Mask less(const Lanes& a, const Lanes& b) {
  return of_each<Mask>([&](std::size_t i) { return a.v[i] < b.v[i]; });
}
Mask equal(const Lanes& a, const Lanes& b) {
  return of_each<Mask>([&](std::size_t i) { return a.v[i] == b.v[i]; });
}
Mask operator&(const Mask& a, const Mask& b) {
  return of_each<Mask>([&](std::size_t i) { return a.v[i] && b.v[i]; });
}
Lanes select(const Mask& mask, const Lanes& a, const Lanes& b) {
  return of_each<Lanes>([&](std::size_t i) { return mask.v[i] ? a.v[i] : b.v[i]; });
}
IntLanes select(const Mask& mask, const IntLanes& a, const IntLanes& b) {
  return of_each<IntLanes>([&](std::size_t i) { return mask.v[i] ? a.v[i] : b.v[i]; });
}
std::uint32_t mask_bits(const Mask& mask) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 16; ++i) word |= std::uint32_t{mask.v[i]} << i;
  return word;
}
IntLanes broadcast_int(std::int32_t x) {
  return of_each<IntLanes>([&](std::size_t) { return x; });
}
IntLanes load_int(const std::int32_t* from) {
  return of_each<IntLanes>([&](std::size_t i) { return from[i]; });
}
void store_int(std::int32_t* to, const IntLanes& x) {
  for (std::size_t i = 0; i < 16; ++i) to[i] = x.v[i];
}
IntLanes operator+(const IntLanes& a, const IntLanes& b) {
  return of_each<IntLanes>([&](std::size_t i) { return wrapped(std::int64_t{a.v[i]} + b.v[i]); });
}
IntLanes operator-(const IntLanes& a, const IntLanes& b) {
  return of_each<IntLanes>([&](std::size_t i) { return wrapped(std::int64_t{a.v[i]} - b.v[i]); });
}
IntLanes operator*(const IntLanes& a, const IntLanes& b) {
  return of_each<IntLanes>([&](std::size_t i) { return wrapped(std::int64_t{a.v[i]} * b.v[i]); });
}
IntLanes dot_halves(const IntLanes& a, const IntLanes& b) {
  const auto low = [](std::int32_t x) { return std::int64_t{static_cast<std::int16_t>(x)}; };
  const auto high = [](std::int32_t x) { return std::int64_t{x >> 16}; };
  return of_each<IntLanes>(
      [&](std::size_t i) { return wrapped(low(a.v[i]) * low(b.v[i]) + high(a.v[i]) * high(b.v[i])); });
}
IntLanes operator&(const IntLanes& a, const IntLanes& b) {
  return of_each<IntLanes>([&](std::size_t i) { return a.v[i] & b.v[i]; });
}
IntLanes operator|(const IntLanes& a, const IntLanes& b) {
  return of_each<IntLanes>([&](std::size_t i) { return a.v[i] | b.v[i]; });
}
IntLanes operator^(const IntLanes& a, const IntLanes& b) {
  return of_each<IntLanes>([&](std::size_t i) { return a.v[i] ^ b.v[i]; });
}
IntLanes max(const IntLanes& a, const IntLanes& b) {
  return of_each<IntLanes>([&](std::size_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
Mask less(const IntLanes& a, const IntLanes& b) {
  return of_each<Mask>([&](std::size_t i) { return a.v[i] < b.v[i]; });
}
Mask equal(const IntLanes& a, const IntLanes& b) {
  return of_each<Mask>([&](std::size_t i) { return a.v[i] == b.v[i]; });
}
template <int n>
IntLanes shift_left(const IntLanes& x) {
  return of_each<IntLanes>([&](std::size_t i) { return wrapped(std::int64_t{x.v[i]} << n); });
}
template <int n>
IntLanes shift_right(const IntLanes& x) {
  return of_each<IntLanes>([&](std::size_t i) { return x.v[i] >> n; });
}
template <int n>
IntLanes shift_right_logical(const IntLanes& x) {
  return of_each<IntLanes>([&](std::size_t i) { return wrapped(static_cast<std::uint32_t>(x.v[i]) >> n); });
}
IntLanes bits(const Lanes& x) {
  return of_each<IntLanes>([&](std::size_t i) { return std::bit_cast<std::int32_t>(x.v[i]); });
}
Lanes from_bits(const IntLanes& x) {
  return of_each<Lanes>([&](std::size_t i) { return std::bit_cast<float>(x.v[i]); });
}
IntLanes to_int(const Lanes& x) {
  return of_each<IntLanes>([&](std::size_t i) {
    const double nearest = std::nearbyint(double{x.v[i]});
    const bool fits = nearest >= -0x1p31 && nearest < 0x1p31;
    return fits ? static_cast<std::int32_t>(nearest) : std::numeric_limits<std::int32_t>::min();
  });
}
Lanes from_int(const IntLanes& x) {
  return of_each<Lanes>([&](std::size_t i) { return static_cast<float>(x.v[i]); });
}
IntLanes load_u16(const std::uint16_t* from) {
  return of_each<IntLanes>([&](std::size_t i) { return std::int32_t{from[i]}; });
}
IntLanes load_u8(const std::uint8_t* from) {
  return of_each<IntLanes>([&](std::size_t i) { return std::int32_t{from[i]}; });
}
IntLanes load_i8(const std::int8_t* from) {
  return of_each<IntLanes>([&](std::size_t i) { return std::int32_t{from[i]}; });
}
std::int32_t of_halves(std::int32_t low, std::int32_t high) {
  return wrapped((low & 0xFFFF) | std::int64_t{high & 0xFFFF} << 16);
}
IntLanes load_i8_pairs(const std::int8_t (&from)[16][2]) {
  return of_each<IntLanes>([&](std::size_t i) { return of_halves(from[i][0], from[i][1]); });
}
void store_u16(std::uint16_t* to, const IntLanes& x) {
  for (std::size_t i = 0; i < 16; ++i) to[i] = static_cast<std::uint16_t>(x.v[i]);
}
void store_i8(std::int8_t* to, const IntLanes& x) {
  for (std::size_t i = 0; i < 16; ++i) to[i] = static_cast<std::int8_t>(x.v[i]);
}
template <int distance>
Lanes swap_lanes(const Lanes& x) {
  return of_each<Lanes>([&](std::size_t i) { return x.v[i ^ static_cast<std::size_t>(distance)]; });
}
Lanes lookup(const float (&table)[16], const IntLanes& index) {
  return of_each<Lanes>([&](std::size_t i) { return table[index.v[i]]; });
}
template <int n>
IntLanes load_repeated(const std::int32_t* from) {
  return of_each<IntLanes>([&](std::size_t i) { return from[i % n]; });
}
IntLanes lookup_bytes(const std::uint8_t (&table)[16], const IntLanes& bytes) {
  return of_each<IntLanes>([&](std::size_t i) {
    const auto word = static_cast<std::uint32_t>(bytes.v[i]);
    std::uint32_t found = 0;
    for (int bit = 0; bit < 32; bit += 8) found |= std::uint32_t{table[word >> bit & 15U]} << bit;
    return static_cast<std::int32_t>(found);
  });
}

Lanes load_e4m3_scaled(const std::uint8_t* from) {
  return of_each<Lanes>([&](std::size_t i) {
    const int exponent = from[i] >> 3 & 15, mantissa = from[i] & 7;
    const float magnitude =
        std::ldexp(static_cast<float>(mantissa + (exponent > 0 ? 8 : 0)), std::max(exponent, 1) - 10 - 8);
    return from[i] >> 7 != 0 ? -magnitude : magnitude;
  });
}

float float_of_half(std::uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  float magnitude = std::ldexp(static_cast<float>(mantissa + (exponent > 0 ? 1024 : 0)), std::max(exponent, 1) - 25);
  if (exponent == 31) magnitude = mantissa > 0 ? std::nanf("") : std::numeric_limits<float>::infinity();
  return half >> 15 != 0 ? -magnitude : magnitude;
}
// Finds the nearest finite half by search; a tie gives the even one. Values from 65520 give infinity.
std::uint16_t half_of_float(float x) {
  const auto sign = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16 & 0x8000U);
  if (std::isnan(x)) {
    return static_cast<std::uint16_t>(sign | 0x7E00U | (std::bit_cast<std::uint32_t>(x) >> 13 & 0x3FFU));
  }
  const double magnitude = std::fabs(double{x});
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7C00U);
  std::uint16_t low = 0, high = 0x7BFF;  // low <= magnitude
  while (low < high) {
    const auto middle = static_cast<std::uint16_t>((low + high + 1) / 2);
    if (double{float_of_half(middle)} <= magnitude) {
      low = middle;
    } else {
      high = static_cast<std::uint16_t>(middle - 1);
    }
  }
  const double below = magnitude - double{float_of_half(low)};
  const double above =
      (low == 0x7BFF ? 65536.0 : double{float_of_half(static_cast<std::uint16_t>(low + 1))}) - magnitude;
  if (above < below || (above == below && (low & 1) != 0)) ++low;
  return static_cast<std::uint16_t>(sign | low);
}
Lanes load_f16(const std::uint16_t* from) {
  return of_each<Lanes>([&](std::size_t i) { return float_of_half(from[i]); });
}
Lanes broadcast_f16(std::uint16_t x) {
  return broadcast(float_of_half(x));
}
void store_f16(std::uint16_t* to, const Lanes& x) {
  for (std::size_t i = 0; i < 16; ++i) to[i] = half_of_float(x.v[i]);
}

float sum(Lanes x) {
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) x.v[i] = x.v[i] + x.v[i + width];
  }
  return x.v[0];
}
float max_of(Lanes x) {
  for (std::size_t width = 8; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
  }
  return x.v[0];
}
std::int32_t sum(const IntLanes& x) {
  std::int64_t total = 0;
  for (const std::int32_t value : x.v) total += value;
  return wrapped(total);
}
std::int32_t max_of(const IntLanes& x) {
  std::int32_t most = x.v[0];
  for (const std::int32_t value : x.v) most = value > most ? value : most;
  return most;
}

}  // namespace
}  // namespace imp::cpu
