// Option structs bound as classes: a keyword of the constructor is the name of an attribute.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

namespace imp::bindings {

// The options with some of them replaced; an unknown keyword is an AttributeError.
template <class Options>
Options with_keywords(Options options, const pybind11::kwargs& given) {
  const pybind11::object attributes = pybind11::cast(&options, pybind11::return_value_policy::reference);
  for (const auto& [name, value] : given) attributes.attr(name) = value;
  return options;
}

template <class Options>
auto from_keywords() {
  return pybind11::init([](const pybind11::kwargs& given) { return with_keywords(Options{}, given); });
}

}  // namespace imp::bindings
