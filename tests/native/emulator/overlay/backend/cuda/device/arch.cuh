// The instructions of the GPU in plain C++. This file replaces the one of csrc.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/vec16.h"
#include "native/emulator/emu.h"
#include "tensor/half.h"

#define IMP_UNROLL
#define IMP_ROLLED
#define IMP_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(imp::cuda::emu::dynamic_shared())

namespace imp::cuda::arch {

inline float f16_to_float(std::uint16_t bits) {
  return f16_to_f32(bits);
}
inline std::uint16_t float_to_f16(float value) {
  return f32_to_f16(value);
}
inline std::uint16_t float_to_bf16(float value) {
  return f32_to_bf16(value);
}
inline std::uint32_t pack_f16(float low, float high) {
  return f32_to_f16(low) | static_cast<std::uint32_t>(f32_to_f16(high)) << 16;
}
inline std::uint32_t pack_bf16(float low, float high) {
  return f32_to_bf16(low) | static_cast<std::uint32_t>(f32_to_bf16(high)) << 16;
}
inline std::uint32_t fma_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto one = [](std::uint16_t x, std::uint16_t y, std::uint16_t z) {
    // Exact in double, except for sums of very different magnitudes. These are rounded to odd, so that the rounding to
    // float is the only one that matters.
    const double exact =
        static_cast<double>(f16_to_f32(x)) * static_cast<double>(f16_to_f32(y)) + static_cast<double>(f16_to_f32(z));
    auto rounded = static_cast<float>(exact);
    if (static_cast<double>(rounded) != exact && std::isfinite(rounded)) {
      auto bits = imp_bits_of<std::uint32_t>(rounded);
      if (std::fabs(static_cast<double>(rounded)) > std::fabs(exact)) --bits;
      rounded = imp_bits_of<float>(bits | 1U);
    }
    return f32_to_f16(rounded);
  };
  const auto low = [](std::uint32_t v) { return static_cast<std::uint16_t>(v); };
  const auto high = [](std::uint32_t v) { return static_cast<std::uint16_t>(v >> 16); };
  return one(low(a), low(b), low(c)) | static_cast<std::uint32_t>(one(high(a), high(b), high(c))) << 16;
}
inline float exp2_approx(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126F ? 0.0F : y;
}
inline float rcp_approx(float x) {
  return 1.0F / x;
}
inline std::uint32_t and_or(std::uint32_t value, std::uint32_t mask, std::uint32_t bits) {
  return (value & mask) | bits;
}
inline std::uint32_t copied(std::uint32_t value) {
  return value;
}
inline std::uint32_t repeat_low(std::uint32_t pair) {
  return (pair & 0xffffU) * 0x10001U;
}
inline std::uint32_t repeat_high(std::uint32_t pair) {
  return (pair >> 16) * 0x10001U;
}

// With e elements in a register and lane = 4 · group + t, all shapes place elements alike:
//   a: row = group + 8 · (r & 1), k = e · t + 4 · e · (r >> 1) + i
//   b: column = group,            k = e · t + 4 · e · r + i
//   d: row = group + 8 · (i >> 1), column = 2 · t + (i & 1)
// This code sums by ascending k; tensor cores have another order. Lanes publish their elements, and read each once.
template <class Element, int kPerRegister, int kHalves, class Accumulator, class Read>
void mma_emulated(Accumulator (&d)[4], const std::uint32_t* a, const std::uint32_t* b, const Read& read) {
  struct Elements {
    Element a[2 * kHalves][kPerRegister], b[kHalves][kPerRegister];
  } mine;
  for (int e = 0; e < kPerRegister; ++e) {
    for (int r = 0; r < 2 * kHalves; ++r) mine.a[r][e] = read(a[r], e);
    for (int r = 0; r < kHalves; ++r) mine.b[r][e] = read(b[r], e);
  }
  emu::exchange(mine, [&](auto from) {
    const unsigned group = emu::lane() / 4, t = emu::lane() % 4;
    Elements rows[4], columns[2][4];  // of a row's group or of a column, by the lane that holds them
    for (unsigned owner = 0; owner < 4; ++owner) {
      rows[owner] = from(group * 4 + owner);
      for (unsigned i = 0; i < 2; ++i) columns[i][owner] = from((2 * t + i) * 4 + owner);
    }
    for (int i = 0; i < 4; ++i) {
      for (int half = 0; half < kHalves; ++half) {
        for (int owner = 0; owner < 4; ++owner) {
          for (int e = 0; e < kPerRegister; ++e) {
            d[i] += rows[owner].a[(i >> 1) + 2 * half][e] * columns[i & 1][owner].b[half][e];
          }
        }
      }
    }
  });
}

inline void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_emulated<float, 2, 2>(
      d, a, b, [](std::uint32_t word, int i) { return f16_to_f32(static_cast<std::uint16_t>(word >> (16 * i))); });
}
inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_emulated<float, 2, 2>(
      d, a, b, [](std::uint32_t word, int i) { return bf16_to_f32(static_cast<std::uint16_t>(word >> (16 * i))); });
}
inline std::int8_t int8_of(std::uint32_t word, int i) {
  return static_cast<std::int8_t>(word >> (8 * i));
}
inline void mma_s8(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_emulated<std::int8_t, 4, 2>(d, a, b, int8_of);
}
inline void mma_s8_k16(int (&d)[4], const std::uint32_t (&a)[2], std::uint32_t b) {
  mma_emulated<std::int8_t, 4, 1>(d, a, &b, int8_of);
}

inline void load_matrices(std::uint32_t (&d)[4], const void* shared_row) {
  emu::exchange(shared_row, [&](auto from) {
    const unsigned lane = emu::lane();
    for (unsigned i = 0; i < 4; ++i) {
      std::memcpy(&d[i], static_cast<const std::byte*>(from(8 * i + lane / 4)) + lane % 4 * 4, sizeof d[i]);
    }
  });
}
inline void load_matrices_transposed(std::uint32_t (&d)[4], const void* shared_row) {
  emu::exchange(shared_row, [&](auto from) {
    const unsigned lane = emu::lane();
    for (unsigned i = 0; i < 4; ++i) {
      std::uint16_t pair[2];
      for (unsigned j = 0; j < 2; ++j) {
        std::memcpy(&pair[j], static_cast<const std::byte*>(from(8 * i + lane % 4 * 2 + j)) + lane / 4 * 2, 2);
      }
      d[i] = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
    }
  });
}

inline void begin_copy16(void* shared, const void* from, bool exists = true) {
  emu::begin_copy(shared, from, exists ? 16 : 0, exists ? 0 : 16);
}
inline void end_copy_group() {
  emu::end_copy_group();
}
template <int kUnderWay>
void wait_for_copies() {
  emu::wait_for_copies(kUnderWay);
}

inline Vec16 load_streamed(const void* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) emu::fail("a load of 16 bytes is not aligned");
  Vec16 v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

}  // namespace imp::cuda::arch
