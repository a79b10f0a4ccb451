// Constants of the GGUF format, and imp's limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "files/metadata_value.h"
#include "tensor/dtype.h"

namespace imp::gguf {

inline constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{256} << 20;  // header, key-values and tensor table
inline constexpr std::uint64_t kMaxKeys = 4096;
inline constexpr std::uint64_t kMaxTensors = 65'536;
inline constexpr std::uint64_t kMaxKeyBytes = 65'535;
inline constexpr std::uint64_t kMaxTensorNameBytes = 64;
inline constexpr std::uint64_t kMaxStringBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kMaxTokenBytes = 4096;  // each element of tokenizer.ggml.tokens
inline constexpr std::uint64_t kMaxArrayElements = std::uint64_t{1} << 24;
inline constexpr std::uint32_t kMaxDims = 4;
inline constexpr std::int64_t kMaxTensorElements = std::int64_t{1} << 40;
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::uint32_t kMinAlignment = 8;
inline constexpr std::uint32_t kMaxAlignment = 65'536;

// The minimal size of a record: a key and a value of one byte each, or a tensor of one dimension with a name of one
// byte.
inline constexpr std::uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
inline constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";

// Value types by their number in the file; 9 is an array.
inline constexpr std::uint32_t kArrayType = 9;
std::optional<ValueType> scalar_type(std::uint32_t id) noexcept;

// A tensor type by its number in the file. imp does not read types without a dtype.
struct TensorType {
  std::uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;
};
// nullptr if no such type exists.
const TensorType* tensor_type(std::uint32_t id) noexcept;

}  // namespace imp::gguf
