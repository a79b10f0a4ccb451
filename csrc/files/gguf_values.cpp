// Reads GGUF's typed values. Checks every count before it allocates memory.
#include "files/gguf_values.h"

#include <algorithm>
#include <bit>
#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "files/gguf_format.h"

namespace imp::gguf {
namespace {

// Reads the value of one key.
class ValueReader {
 public:
  ValueReader(ByteReader& reader, const std::string& where, const std::string& key)
      : reader_(reader), key_(key), what_("key " + printable(key)), where_(where) {}

  MetadataValue read() {
    const auto type_id = reader_.number<std::uint32_t>(what_);
    if (type_id == kArrayType) return array();
    const std::optional<ValueType> type = scalar_type(type_id);
    if (!type) fail(Reason::MODEL_TYPE, "value type " + std::to_string(type_id) + ", known are 0 to 12");
    return {*type, scalar(*type)};
  }

 private:
  MetadataValue::Storage scalar(ValueType type) {
    switch (type) {
      case ValueType::U8:
        return std::uint64_t{reader_.number<std::uint8_t>(what_)};
      case ValueType::I8:
        return std::int64_t{reader_.number<std::int8_t>(what_)};
      case ValueType::U16:
        return std::uint64_t{reader_.number<std::uint16_t>(what_)};
      case ValueType::I16:
        return std::int64_t{reader_.number<std::int16_t>(what_)};
      case ValueType::U32:
        return std::uint64_t{reader_.number<std::uint32_t>(what_)};
      case ValueType::I32:
        return std::int64_t{reader_.number<std::int32_t>(what_)};
      case ValueType::U64:
        return reader_.number<std::uint64_t>(what_);
      case ValueType::I64:
        return reader_.number<std::int64_t>(what_);
      case ValueType::F32:
        return double{reader_.number<float>(what_)};
      case ValueType::F64:
        return reader_.number<double>(what_);
      case ValueType::BOOL:
        return boolean(reader_.number<std::uint8_t>(what_));
      case ValueType::STRING:
        return string();
      case ValueType::NONE:
        break;
    }
    return std::monostate{};  // scalar_type() never gives NONE
  }

  bool boolean(std::uint8_t byte) {
    if (byte > 1) fail(Reason::MODEL_VALUE, "boolean of value " + std::to_string(byte) + ", expected 0 or 1");
    return byte == 1;
  }

  std::uint64_t string_bytes(std::uint64_t limit) {
    const auto n_bytes = reader_.number<std::uint64_t>(what_);
    if (n_bytes > limit) {
      fail(Reason::MODEL_LIMIT, "string of " + std::to_string(n_bytes) + " bytes, limit " + std::to_string(limit));
    }
    reader_.require(n_bytes, what_);
    return n_bytes;
  }

  std::string string() {
    std::string text(string_bytes(kMaxStringBytes), '\0');
    reader_.bytes(std::as_writable_bytes(std::span(text)), what_);
    return text;
  }

  MetadataValue array() {
    const auto type_id = reader_.number<std::uint32_t>(what_);
    if (type_id == kArrayType) fail(Reason::MODEL_TYPE, "array of arrays, expected an array of scalars or strings");
    const std::optional<ValueType> type = scalar_type(type_id);
    if (!type) fail(Reason::MODEL_TYPE, "array of value type " + std::to_string(type_id) + ", known are 0 to 12");
    const auto n_elements = reader_.number<std::uint64_t>(what_);
    if (n_elements > kMaxArrayElements) {
      fail(Reason::MODEL_LIMIT,
           "array of " + std::to_string(n_elements) + " elements, limit " + std::to_string(kMaxArrayElements));
    }
    if (*type == ValueType::STRING) return {*type, strings(n_elements)};
    return {*type, numbers(*type, n_elements)};
  }

  NumericArray numbers(ValueType type, std::uint64_t n_elements) {
    const std::uint64_t n_bytes = n_elements * value_type_bytes(type);  // at most 2^27
    reader_.require(n_bytes, what_);
    NumericArray array{type, std::vector<std::byte>(n_bytes)};
    reader_.bytes(array.bytes, what_);
    if (type == ValueType::BOOL) {
      for (const std::byte byte : array.bytes) boolean(std::to_integer<std::uint8_t>(byte));
    }
    return array;
  }

  StringArray strings(std::uint64_t n_elements) {
    reader_.require(n_elements * sizeof(std::uint64_t), what_);  // the lengths alone
    const std::uint64_t limit = key_ == kTokensKey ? kMaxTokenBytes : kMaxStringBytes;
    StringArray array;
    array.reserve(n_elements, 0);
    for (std::uint64_t i = 0; i < n_elements; ++i) {
      const std::uint64_t n_bytes = string_bytes(limit);
      reader_.bytes(std::as_writable_bytes(array.append(n_bytes)), what_);
    }
    return array;
  }

  [[noreturn]] void fail(Reason reason, const std::string& message) const {
    throw ModelError(reason, where_ + ": " + what_ + ": " + message);
  }

  ByteReader& reader_;
  const std::string& key_;
  const std::string what_;
  const std::string& where_;
};

std::string read_key(ByteReader& reader, const std::string& where, std::uint64_t number) {
  const std::string what = "key number " + std::to_string(number);
  const auto n_bytes = reader.number<std::uint64_t>(what);
  if (n_bytes == 0) throw ModelError(Reason::MODEL_STRING, where + ": " + what + ": is empty, expected a name");
  if (n_bytes > kMaxKeyBytes) {
    throw ModelError(Reason::MODEL_LIMIT, where + ": " + what + ": name of " + std::to_string(n_bytes) +
                                              " bytes, limit " + std::to_string(kMaxKeyBytes));
  }
  reader.require(n_bytes, what);
  std::string key(n_bytes, '\0');
  reader.bytes(std::as_writable_bytes(std::span(key)), what);
  check_name(where, what, key);
  return key;
}

// The only key that the reader itself needs.
void check_alignment(const Metadata& metadata, const MetadataValue& value) {
  const std::string where = metadata.where() + ": key " + std::string(kAlignmentKey) + ": ";
  if (value.type != ValueType::U32 || value.is_array()) {
    throw ModelError(Reason::MODEL_TYPE, where + "has type " + value.type_description() + ", expected u32");
  }
  const std::uint64_t alignment = std::get<std::uint64_t>(value.value);
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
    metadata.refuse_value(
        kAlignmentKey, std::to_string(alignment),
        "a power of two from " + std::to_string(kMinAlignment) + " to " + std::to_string(kMaxAlignment));
  }
}

}  // namespace

void check_name(std::string_view where, std::string_view what, std::string_view name) {
  const bool control =
      std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (!control && is_utf8(name)) return;
  throw ModelError(Reason::MODEL_STRING, std::string(where) + ": " + std::string(what) + ": name \"" + printable(name) +
                                             "\", expected UTF-8 without control characters");
}

void read_key_values(ByteReader& reader, std::uint64_t n_keys, Metadata& metadata) {
  for (std::uint64_t i = 0; i < n_keys; ++i) {
    std::string key = read_key(reader, metadata.where(), i);
    if (metadata.contains(key)) {
      throw ModelError(Reason::MODEL_DUPLICATE,
                       metadata.where() + ": key " + printable(key) + ": occurs twice, expected once");
    }
    MetadataValue value = ValueReader(reader, metadata.where(), key).read();
    if (key == kAlignmentKey) check_alignment(metadata, value);
    metadata.insert(std::move(key), std::move(value));
  }
}

}  // namespace imp::gguf
