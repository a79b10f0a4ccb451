// A checkpoint's key-values, typed as in the file. Getters check type and range.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "files/metadata_value.h"

namespace imp {

// How strict a format is about types, and the reasons of its errors.
struct MetadataRules {
  Reason missing_key = Reason::MODEL_KEY;
  Reason wrong_type = Reason::MODEL_TYPE;
  Reason wrong_value = Reason::MODEL_VALUE;
  bool any_number_is_float = false;  // JSON writes 10000 for 10000.0; GGUF has f32 for every float key
};

class Metadata {
 public:
  // `where` begins every message: the file's name.
  explicit Metadata(std::string where, MetadataRules rules = {}) : where_(std::move(where)), rules_(rules) {}

  // Returns false, and changes nothing, if the key exists.
  bool insert(std::string key, MetadataValue value);

  // In file order.
  const std::vector<std::pair<std::string, MetadataValue>>& entries() const noexcept { return entries_; }
  const MetadataValue* find(std::string_view key) const noexcept;
  bool contains(std::string_view key) const noexcept { return find(key) != nullptr; }
  bool is_array(std::string_view key) const noexcept;

  // Required keys. Each throws ModelError with file and key if the key is missing (MODEL_KEY), has another type
  // (MODEL_TYPE), or a value that T cannot hold (MODEL_VALUE). Integers may have any integer type.
  template <std::integral T>
  T integer(std::string_view key) const {
    return narrowed<T>(key, required(key));
  }
  float number(std::string_view key) const { return number_of(key, required(key)); }
  bool boolean(std::string_view key) const { return boolean_of(key, required(key)); }
  std::string_view string(std::string_view key) const { return string_of(key, required(key)); }
  const StringArray& strings(std::string_view key) const { return strings_of(key, required(key)); }
  template <std::integral T>
  std::vector<T> integers(std::string_view key) const {
    return narrowed_all<T>(key, required(key));
  }
  std::vector<float> numbers(std::string_view key) const { return numbers_of(key, required(key)); }

  // Optional keys: empty or nullptr if missing (or null).
  template <std::integral T>
  std::optional<T> find_integer(std::string_view key) const {
    const MetadataValue* value = present(key);
    return value ? std::optional<T>(narrowed<T>(key, *value)) : std::nullopt;
  }
  std::optional<float> find_number(std::string_view key) const;
  std::optional<bool> find_boolean(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  const StringArray* find_strings(std::string_view key) const;
  template <std::integral T>
  std::optional<std::vector<T>> find_integers(std::string_view key) const {
    const MetadataValue* value = present(key);
    return value ? std::optional(narrowed_all<T>(key, *value)) : std::nullopt;
  }
  std::optional<std::vector<float>> find_numbers(std::string_view key) const;

  // For readers that find an invalid value: throws `<file>: key <key>: <found>, expected <expected>`.
  [[noreturn]] void refuse_value(std::string_view key, std::string_view found, std::string_view expected) const;
  const std::string& where() const noexcept { return where_; }
  Reason wrong_value() const noexcept { return rules_.wrong_value; }  // the reason of that error

 private:
  // An integer of either sign: `value` if it is not negative, else negative_value.
  struct WideInteger {
    bool negative = false;
    std::uint64_t value = 0;
    std::int64_t negative_value = 0;
  };

  template <std::integral T>
  T narrowed(std::string_view key, const MetadataValue& value) const {
    return fit<T>(key, integer_of(key, value));
  }
  template <std::integral T>
  std::vector<T> narrowed_all(std::string_view key, const MetadataValue& value) const {
    const NumericArray& array = integers_of(key, value);
    std::vector<T> result(array.size());
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = fit<T>(key, integer_at(array, i));
    return result;
  }
  template <std::integral T>
  T fit(std::string_view key, const WideInteger& integer) const {
    if (integer.negative ? std::in_range<T>(integer.negative_value) : std::in_range<T>(integer.value)) {
      return integer.negative ? static_cast<T>(integer.negative_value) : static_cast<T>(integer.value);
    }
    const std::string found = integer.negative ? std::to_string(integer.negative_value) : std::to_string(integer.value);
    refuse_value(
        key, found,
        std::to_string(std::numeric_limits<T>::min()) + " to " + std::to_string(std::numeric_limits<T>::max()));
  }

  const MetadataValue& required(std::string_view key) const;
  const MetadataValue* present(std::string_view key) const noexcept;  // nullptr if missing or null
  WideInteger integer_of(std::string_view key, const MetadataValue& value) const;
  const NumericArray& integers_of(std::string_view key, const MetadataValue& value) const;
  static WideInteger integer_at(const NumericArray& array, std::size_t i);
  float narrowed_number(std::string_view key, double number) const;
  float number_of(std::string_view key, const MetadataValue& value) const;
  bool boolean_of(std::string_view key, const MetadataValue& value) const;
  std::string_view string_of(std::string_view key, const MetadataValue& value) const;
  const StringArray& strings_of(std::string_view key, const MetadataValue& value) const;
  std::vector<float> numbers_of(std::string_view key, const MetadataValue& value) const;
  [[noreturn]] void refuse_type(std::string_view key, const MetadataValue& value, std::string_view expected) const;

  std::string where_;
  MetadataRules rules_;
  std::vector<std::pair<std::string, MetadataValue>> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

}  // namespace imp
