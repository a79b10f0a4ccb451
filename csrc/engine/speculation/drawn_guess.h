// Helpers of the drafters that run a network: the confidence of a drawn token, and whether it ends the run.
#pragma once

#include <cstdint>

#include "engine/sequence/sequence.h"

namespace imp {

// The confidence class, 0 to 3, of a token that a drafter drew with this log-probability.
std::uint8_t confidence_of(float logprob) noexcept;

// Whether the run ends if this token is its n-th output from now on (0: the next one).
bool ends_run(const Run& run, std::int32_t token, int n) noexcept;

}  // namespace imp
