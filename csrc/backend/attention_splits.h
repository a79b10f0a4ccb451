// How attention divides its keys: a plain constant, so that files compiled for one instruction set can include it.
#pragma once

namespace imp {

// Keys per split; splits begin at multiples of it. Each split has a state, and states are merged in ascending order.
inline constexpr int kSplitTokens = 256;

}  // namespace imp
