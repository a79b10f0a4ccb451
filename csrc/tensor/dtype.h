// The types a tensor's elements can have: one traits row each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace imp {

enum class DType : std::uint8_t {
  F32,
  F16,
  BF16,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS,
  MXFP4,
  TQ1_0,
  TQ2_0,
  IQ1_S,
  IQ1_M,
  IQ2_XXS,
  IQ2_XS,
  IQ2_S,
  IQ3_XXS,
  IQ3_S,
  F8_E4M3,
};

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
// "f32, f16, ...": for messages that list what is known.
std::string dtype_names();

// Bytes of n_elements consecutive elements. Empty if n_elements is negative or does not fill whole blocks, or if the
// bytes exceed 63 bits.
std::optional<std::int64_t> row_bytes(DType dtype, std::int64_t n_elements) noexcept;

}  // namespace imp
