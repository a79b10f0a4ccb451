// Helpers of the drafters that run a network: the confidence of a drawn token, and whether it ends the run.
#pragma once

#include <cstdint>

#include "engine/sequence.h"

namespace imp {

// 0 to 3 by the probability that a drafter gave its own draw.
std::uint8_t confidence_of(float logprob) noexcept;

// Whether the run ends with this token as its n-th next output: nothing follows it.
bool ends_run(const Run& run, std::int32_t token, int n) noexcept;

}  // namespace imp
