// Refusals of fields of commands, by their path in the caller's words.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace imp {

[[noreturn]] inline void refuse(const std::string& field, const std::string& found, const std::string& expected) {
  throw FieldInvalid(field, found + ", expected " + expected);
}

inline void check_at_least(const std::string& field, std::int64_t value, std::int64_t least) {
  if (value < least) refuse(field, std::to_string(value), "at least " + std::to_string(least));
}

inline void check_range(const std::string& field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    refuse(field, std::to_string(value), std::to_string(least) + " to " + std::to_string(most));
  }
}

inline void check_bytes(const std::string& field, const std::string& value, int most) {
  if (std::cmp_greater(value.size(), most)) {
    refuse(field, std::to_string(value.size()) + " bytes", "at most " + std::to_string(most));
  }
}

}  // namespace imp
