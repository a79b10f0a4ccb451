// Converts a sampler's numbers to and from Python keywords.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <variant>

#include "backend/sampler_fields.h"

namespace imp::bindings {

// "dry.base" is the keyword dry_base.
inline std::string keyword_of(const SamplerField& field) {
  std::string keyword(field.name);
  std::ranges::replace(keyword, '.', '_');
  return keyword;
}

inline pybind11::object value_of(const SamplerField& field, const SamplerValues& values) {
  return std::visit([&](auto member) { return pybind11::object(pybind11::cast(values.*member)); }, field.member);
}

// Moves the known fields from `keywords` to `values`. Raises TypeError if a value does not fit its field's type.
inline void take_values(pybind11::dict& keywords, SamplerValues& values) {
  for (const SamplerField& field : kSamplerFields) {
    const std::string keyword = keyword_of(field);
    if (!keywords.contains(keyword.c_str())) continue;
    const pybind11::object given = keywords.attr("pop")(keyword);
    try {
      const auto set = [&](auto member) {
        auto& value = values.*member;
        value = given.cast<std::remove_reference_t<decltype(value)>>();
      };
      std::visit(set, field.member);
    } catch (const pybind11::cast_error&) {
      throw pybind11::type_error(keyword + ": " + std::string(pybind11::repr(given)) + ", expected a number that fits");
    }
  }
}

inline pybind11::dict dict_of(const SamplerValues& values) {
  pybind11::dict found;
  for (const SamplerField& field : kSamplerFields) found[keyword_of(field).c_str()] = value_of(field, values);
  return found;
}

}  // namespace imp::bindings
