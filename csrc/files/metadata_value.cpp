// Names and sizes of the value types.
#include "files/metadata_value.h"

namespace imp {

std::string_view value_type_name(ValueType type) noexcept {
  switch (type) {
    case ValueType::U8:
      return "u8";
    case ValueType::I8:
      return "i8";
    case ValueType::U16:
      return "u16";
    case ValueType::I16:
      return "i16";
    case ValueType::U32:
      return "u32";
    case ValueType::I32:
      return "i32";
    case ValueType::U64:
      return "u64";
    case ValueType::I64:
      return "i64";
    case ValueType::F32:
      return "f32";
    case ValueType::F64:
      return "f64";
    case ValueType::BOOL:
      return "bool";
    case ValueType::STRING:
      return "string";
    case ValueType::NONE:
      return "null";
  }
  return "null";
}

std::size_t value_type_bytes(ValueType type) noexcept {
  switch (type) {
    case ValueType::U8:
    case ValueType::I8:
    case ValueType::BOOL:
      return 1;
    case ValueType::U16:
    case ValueType::I16:
      return 2;
    case ValueType::U32:
    case ValueType::I32:
    case ValueType::F32:
      return 4;
    case ValueType::U64:
    case ValueType::I64:
    case ValueType::F64:
      return 8;
    case ValueType::STRING:
    case ValueType::NONE:
      return 0;
  }
  return 0;
}

std::string MetadataValue::type_description() const {
  return (is_array() ? "array of " : "") + std::string(value_type_name(type));
}

}  // namespace imp
