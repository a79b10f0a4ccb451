// Lookups and error messages of metadata.
#include "files/metadata.h"

#include <cmath>

namespace imp {
namespace {

bool is_integer(ValueType type) noexcept {
  return type <= ValueType::I64;
}

}  // namespace

bool Metadata::insert(std::string key, MetadataValue value) {
  if (!index_.try_emplace(key, entries_.size()).second) return false;
  entries_.emplace_back(std::move(key), std::move(value));
  return true;
}

const MetadataValue* Metadata::find(std::string_view key) const noexcept {
  const auto place = index_.find(key);
  return place == index_.end() ? nullptr : &entries_[place->second].second;
}

const MetadataValue* Metadata::present(std::string_view key) const noexcept {
  const MetadataValue* value = find(key);
  return value && value->type != ValueType::NONE ? value : nullptr;
}

bool Metadata::is_array(std::string_view key) const noexcept {
  const MetadataValue* value = find(key);
  return value && value->is_array();
}

const MetadataValue& Metadata::required(std::string_view key) const {
  if (const MetadataValue* value = present(key)) return *value;
  throw ModelError(rules_.missing_key, where_ + ": key " + std::string(key) + ": missing, but required");
}

std::optional<float> Metadata::find_number(std::string_view key) const {
  const MetadataValue* value = present(key);
  return value ? std::optional(number_of(key, *value)) : std::nullopt;
}

std::optional<bool> Metadata::find_boolean(std::string_view key) const {
  const MetadataValue* value = present(key);
  return value ? std::optional(boolean_of(key, *value)) : std::nullopt;
}

std::optional<std::string_view> Metadata::find_string(std::string_view key) const {
  const MetadataValue* value = present(key);
  return value ? std::optional(string_of(key, *value)) : std::nullopt;
}

const StringArray* Metadata::find_strings(std::string_view key) const {
  const MetadataValue* value = present(key);
  return value ? &strings_of(key, *value) : nullptr;
}

std::optional<std::vector<float>> Metadata::find_numbers(std::string_view key) const {
  const MetadataValue* value = present(key);
  return value ? std::optional(numbers_of(key, *value)) : std::nullopt;
}

void Metadata::refuse_value(std::string_view key, std::string_view found, std::string_view expected) const {
  throw ModelError(rules_.wrong_value, where_ + ": key " + std::string(key) + ": " + std::string(found) +
                                           ", expected " + std::string(expected));
}

void Metadata::refuse_type(std::string_view key, const MetadataValue& value, std::string_view expected) const {
  throw ModelError(rules_.wrong_type, where_ + ": key " + std::string(key) + ": has type " + value.type_description() +
                                          ", expected " + std::string(expected));
}

Metadata::WideInteger Metadata::integer_of(std::string_view key, const MetadataValue& value) const {
  if (const auto* unsigned_value = std::get_if<std::uint64_t>(&value.value)) return {false, *unsigned_value, 0};
  if (const auto* signed_value = std::get_if<std::int64_t>(&value.value)) {
    if (*signed_value < 0) return {true, 0, *signed_value};
    return {false, static_cast<std::uint64_t>(*signed_value), 0};
  }
  refuse_type(key, value, "an integer type");
}

const NumericArray& Metadata::integers_of(std::string_view key, const MetadataValue& value) const {
  const auto* array = std::get_if<NumericArray>(&value.value);
  if (array && is_integer(array->type)) return *array;
  refuse_type(key, value, "array of an integer type");
}

Metadata::WideInteger Metadata::integer_at(const NumericArray& array, std::size_t i) {
  const auto widened = [&]<class T>(T value) -> WideInteger {
    if (value < 0) return {true, 0, static_cast<std::int64_t>(value)};
    return {false, static_cast<std::uint64_t>(value), 0};
  };
  switch (array.type) {
    case ValueType::U8:
      return {false, array.element<std::uint8_t>(i), 0};
    case ValueType::I8:
      return widened(array.element<std::int8_t>(i));
    case ValueType::U16:
      return {false, array.element<std::uint16_t>(i), 0};
    case ValueType::I16:
      return widened(array.element<std::int16_t>(i));
    case ValueType::U32:
      return {false, array.element<std::uint32_t>(i), 0};
    case ValueType::I32:
      return widened(array.element<std::int32_t>(i));
    case ValueType::U64:
      return {false, array.element<std::uint64_t>(i), 0};
    default:
      return widened(array.element<std::int64_t>(i));
  }
}

float Metadata::number_of(std::string_view key, const MetadataValue& value) const {
  if (const auto* number = std::get_if<double>(&value.value)) {
    if (value.type == ValueType::F32 || rules_.any_number_is_float) return narrowed_number(key, *number);
  } else if (rules_.any_number_is_float && !value.is_array() && is_integer(value.type)) {
    const WideInteger integer = integer_of(key, value);
    return integer.negative ? static_cast<float>(integer.negative_value) : static_cast<float>(integer.value);
  }
  refuse_type(key, value, rules_.any_number_is_float ? "a number" : "f32");
}

float Metadata::narrowed_number(std::string_view key, double number) const {
  const float narrowed = static_cast<float>(number);
  const bool is_too_large = std::isinf(narrowed) && !std::isinf(number);
  const bool is_from_json = rules_.any_number_is_float;
  if (is_too_large || (is_from_json && !std::isfinite(number))) {
    refuse_value(key, std::to_string(number), "a number within f32");
  }
  return narrowed;
}

bool Metadata::boolean_of(std::string_view key, const MetadataValue& value) const {
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag;
  refuse_type(key, value, "bool");
}

std::string_view Metadata::string_of(std::string_view key, const MetadataValue& value) const {
  if (const auto* text = std::get_if<std::string>(&value.value)) return *text;
  refuse_type(key, value, "string");
}

const StringArray& Metadata::strings_of(std::string_view key, const MetadataValue& value) const {
  if (const auto* strings = std::get_if<StringArray>(&value.value)) return *strings;
  refuse_type(key, value, "array of string");
}

std::vector<float> Metadata::numbers_of(std::string_view key, const MetadataValue& value) const {
  const auto* array = std::get_if<NumericArray>(&value.value);
  const bool integers = array && is_integer(array->type) && rules_.any_number_is_float;
  const bool doubles = array && array->type == ValueType::F64 && rules_.any_number_is_float;
  if (!integers && !doubles && !(array && array->type == ValueType::F32)) {
    refuse_type(key, value, rules_.any_number_is_float ? "array of numbers" : "array of f32");
  }
  std::vector<float> numbers(array->size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (integers) {
      const WideInteger integer = integer_at(*array, i);
      numbers[i] = integer.negative ? static_cast<float>(integer.negative_value) : static_cast<float>(integer.value);
    } else {
      numbers[i] = doubles ? narrowed_number(key, array->element<double>(i)) : array->element<float>(i);
    }
  }
  return numbers;
}

}  // namespace imp
