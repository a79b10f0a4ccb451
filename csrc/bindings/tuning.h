// A tuning as a Python list.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "backend/gemm_registry.h"

namespace imp::bindings {

// (weight type, kernel, up to how many rows or None) by ascending rows of each type.
using PythonTuning = std::vector<std::tuple<std::string, std::string, std::optional<int>>>;

// Throws InvalidArgument for a weight type that is not known.
std::vector<GemmPreference> preferences_of(const PythonTuning& tuning);

}  // namespace imp::bindings
