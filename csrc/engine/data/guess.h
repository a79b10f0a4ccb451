// A draft token.
#pragma once

#include <cstdint>

namespace imp {

// The most drafters of one engine, including "grammar".
inline constexpr int kMaxDrafters = 6;

struct Guess {
  std::int32_t token = 0;
  std::uint8_t confidence = 0;  // class within its drafter, by which the share of right guesses is measured
};

}  // namespace imp
