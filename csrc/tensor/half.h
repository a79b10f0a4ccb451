// Exact conversions between float and the bits of the two 16-bit formats.
#pragma once

#include <bit>
#include <cstdint>

namespace imp {

// Every f16 value is a float. A signalling NaN becomes quiet and keeps its payload, as in hardware.
constexpr float f16_to_f32(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    // Zero and subnormals are mantissa · 2^-24: a normal float, so flush-to-zero modes do not touch it.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  if (exponent == 0x1f) {
    const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
}

// Rounds to nearest, ties to even, in any rounding mode; overflows to infinity.
constexpr std::uint16_t f32_to_f16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 2^16 and above
  const std::uint32_t exponent = magnitude >> 23;
  // Results below 2^-14 have the fixed unit 2^-24; at an exponent under 102 all of them round to zero.
  if (exponent < 102) return static_cast<std::uint16_t>(sign);
  const bool subnormal = exponent < 113;
  const std::uint32_t shift = subnormal ? 126 - exponent : 13;
  const std::uint32_t scaled = subnormal ? (magnitude & 0x7fffffu) | 0x800000u : magnitude - (112u << 23);
  const std::uint32_t truncated = scaled >> shift;
  const std::uint32_t rest = scaled & ((1u << shift) - 1);
  const std::uint32_t half_unit = 1u << (shift - 1);
  const std::uint32_t up = rest > half_unit || (rest == half_unit && (truncated & 1u) != 0) ? 1u : 0u;
  return static_cast<std::uint16_t>(sign | (truncated + up));  // a carry into the exponent is the right result
}

constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN (quiet).
constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace imp
