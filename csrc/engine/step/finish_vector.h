// The last arithmetic of the vector of a text.
#pragma once

#include <vector>

#include "engine/data/commands.h"

namespace imp {

// Keeps the first dimensions and, if it is to be normalized, divides them by their length. Computes in double, in
// order, and rounds once. A zero vector stays zero. Returns false, and changes nothing, if a value is not finite.
bool finish_vector(const VectorRequest& request, std::vector<float>& vector) noexcept;

}  // namespace imp
