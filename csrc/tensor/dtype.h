// The types of a tensor's elements: one row of traits each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace imp {

// Calls `use(name, Type)` for each type; its block is quant::BlockType.
// clang-format off
#define IMP_DTYPES(use) \
  use(f32, F32) \
  use(f16, F16) \
  use(bf16, BF16) \
  use(q4_0, Q4_0) \
  use(q4_1, Q4_1) \
  use(q5_0, Q5_0) \
  use(q5_1, Q5_1) \
  use(q8_0, Q8_0) \
  use(q2_k, Q2_K) \
  use(q3_k, Q3_K) \
  use(q4_k, Q4_K) \
  use(q5_k, Q5_K) \
  use(q6_k, Q6_K) \
  use(iq4_nl, IQ4_NL) \
  use(iq4_xs, IQ4_XS) \
  use(mxfp4, MXFP4) \
  use(tq1_0, TQ1_0) \
  use(tq2_0, TQ2_0) \
  use(iq1_s, IQ1_S) \
  use(iq1_m, IQ1_M) \
  use(iq2_xxs, IQ2_XXS) \
  use(iq2_xs, IQ2_XS) \
  use(iq2_s, IQ2_S) \
  use(iq3_xxs, IQ3_XXS) \
  use(iq3_s, IQ3_S) \
  use(f8_e4m3, F8_E4M3)
// clang-format on

#define IMP_ENUMERATOR(name, Type) Type,
enum class DType : std::uint8_t { IMP_DTYPES(IMP_ENUMERATOR) };
#undef IMP_ENUMERATOR

// Decodes n_blocks consecutive blocks to n_blocks · block_elements floats, exactly as the format defines. `blocks` may
// have any alignment; the ranges must not overlap. Any thread may call it in any flush-to-zero mode: only MXFP4 has
// subnormal values, and it does not compute them.
using Dequantize = void (*)(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept;

struct DTypeTraits {
  DType dtype;
  std::string_view name;  // "q4_k": in file names, imp.conf, logs and tests
  std::int64_t block_elements;
  std::int64_t block_bytes;
  Dequantize dequantize;
};

// All rows, in the order of the enumeration.
std::span<const DTypeTraits> all_dtypes() noexcept;
const DTypeTraits& traits(DType dtype) noexcept;
std::optional<DType> dtype_from_name(std::string_view name) noexcept;
// "f32, f16, ...": for messages that list the known types.
std::string dtype_names();

// Bytes of n_elements consecutive elements. Empty if n_elements is negative or does not fill whole blocks, or if the
// bytes exceed 63 bits.
std::optional<std::int64_t> row_bytes(DType dtype, std::int64_t n_elements) noexcept;

}  // namespace imp
