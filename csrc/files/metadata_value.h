// One value of a checkpoint's metadata: a scalar, a string, or a packed array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace imp {

// The type of a value in the file. NONE is JSON's null.
enum class ValueType : std::uint8_t { U8, I8, U16, I16, U32, I32, U64, I64, F32, F64, BOOL, STRING, NONE };
std::string_view value_type_name(ValueType type) noexcept;
// Bytes of one element in an array of numbers or booleans; 0 for strings and NONE.
std::size_t value_type_bytes(ValueType type) noexcept;

// Strings in one buffer, since a vocabulary has millions of short ones. Elements have the file's bytes, which may not
// be UTF-8.
class StringArray {
 public:
  std::size_t size() const noexcept { return ends_.size(); }
  std::string_view operator[](std::size_t i) const noexcept {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {bytes_.data() + begin, ends_[i] - begin};
  }
  void reserve(std::size_t n_strings, std::size_t n_bytes) {
    ends_.reserve(n_strings);
    bytes_.reserve(n_bytes);
  }
  // Adds a string of n_bytes and returns its address. All strings together stay below 4 GiB; metadata is limited far
  // below that.
  std::span<char> append(std::size_t n_bytes) {
    bytes_.resize(bytes_.size() + n_bytes);
    ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    return std::span(bytes_).last(n_bytes);
  }

  bool operator==(const StringArray&) const = default;

 private:
  std::vector<char> bytes_;
  std::vector<std::uint32_t> ends_;  // end of each string in bytes_
};

// Numbers or booleans (one byte each, 0 or 1), packed as in the file, in the byte order of the host.
struct NumericArray {
  ValueType type = ValueType::U8;
  std::vector<std::byte> bytes;

  // Also 0 for JSON's empty array, whose type is NONE.
  std::size_t size() const noexcept { return bytes.empty() ? 0 : bytes.size() / value_type_bytes(type); }
  template <class T>
  T element(std::size_t i) const noexcept {  // T is the C++ type of `type`
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  bool operator==(const NumericArray&) const = default;  // bit for bit
};

struct MetadataValue {
  using Storage =
      std::variant<std::monostate, std::uint64_t, std::int64_t, double, bool, std::string, NumericArray, StringArray>;
  ValueType type = ValueType::NONE;  // of the value, or of an array's elements
  Storage value;                     // unsigned types widened to uint64, signed to int64, floats to double

  bool is_array() const noexcept {
    return std::holds_alternative<NumericArray>(value) || std::holds_alternative<StringArray>(value);
  }
  // An empty array of JSON has no type either, but is a value.
  bool is_null() const noexcept { return type == ValueType::NONE && !is_array(); }
  bool operator==(const MetadataValue&) const = default;
  std::string type_description() const;  // "u32", "array of string"
};

}  // namespace imp
