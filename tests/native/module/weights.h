// For tests of products: weights from the bytes of a file, and the scratch for them.
#pragma once

#include <pybind11/numpy.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace imp::bindings {

using Bytes = pybind11::array_t<std::uint8_t, pybind11::array::c_style | pybind11::array::forcecast>;

// Pairs of a pattern and a kernel.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// A weight [n, k], named w, of the bytes that a file would hold.
std::unique_ptr<Linear> weight_of(Backend& backend, const std::string& dtype, const Bytes& file, int n, int k,
                                  const Overrides& overrides = {}, bool deterministic = true);

// Scratch for products only; all other needs are minimal.
WorkspaceNeeds needs_of(int n_rows, std::vector<const Linear*> weights);

}  // namespace imp::bindings
