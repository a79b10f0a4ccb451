// How steps ran on a device that captures some of them and does them again.
#pragma once

#include <cstdint>
#include <string_view>

namespace imp {

struct StepGraphCounts {
  std::uint64_t eager = 0;  // steps done launch by launch
  std::uint64_t captures = 0;
  std::uint64_t replays = 0;
  std::uint64_t evictions = 0;
  std::uint64_t failures = 0;     // captures that came to nothing: their steps stay eager
  std::string_view last_failure;  // the runtime's word for it, static; empty where none failed
};

}  // namespace imp
