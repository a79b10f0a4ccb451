// Every operation is exact or rounds as IEEE 754 says, so the result has the same bits everywhere.
#include "engine/step/finish_vector.h"

#include <algorithm>
#include <cmath>

namespace imp {

bool finish_vector(const VectorRequest& request, std::vector<float>& vector) noexcept {
  if (!std::ranges::all_of(vector, [](float value) { return std::isfinite(value); })) return false;
  if (request.dimensions > 0) vector.resize(static_cast<std::size_t>(request.dimensions));
  if (!request.normalized) return true;
  double sum = 0;
  for (const float value : vector) sum += static_cast<double>(value) * value;
  if (sum == 0) return true;
  const double length = std::sqrt(sum);
  for (float& value : vector) value = static_cast<float>(value / length);
  return true;
}

}  // namespace imp
