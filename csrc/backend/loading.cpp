// Checks a weight's shape.
#include "backend/loading.h"

#include <string>

#include "base/error.h"

namespace imp {

void require_shape(const WeightSource& source) {
  const GemmProblem& problem = source.problem;
  const auto size = row_bytes(problem.weight, problem.k);
  // Below this, sums of sizes cannot overflow. The checkpoint reader has a lower limit.
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
  if (problem.n < 1 || problem.k < 1 || !size || *size > kMaxBytes || problem.n > kMaxBytes / *size) {
    throw ModelError(Reason::MODEL_SHAPE,
                     source.name + ": shape [" + std::to_string(problem.n) + ", " + std::to_string(problem.k) +
                         "] of " + std::string(traits(problem.weight).name) + ", expected rows of whole blocks");
  }
}

}  // namespace imp
