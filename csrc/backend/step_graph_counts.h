// How steps ran on a device that captures them as graphs and replays them.
#pragma once

#include <cstdint>
#include <string_view>

namespace imp {

struct StepGraphCounts {
  std::uint64_t eager = 0;  // steps launched kernel by kernel
  std::uint64_t captures = 0;
  std::uint64_t replays = 0;
  std::uint64_t evictions = 0;
  std::uint64_t failures = 0;     // failed captures: their steps stay eager
  std::string_view last_failure;  // the runtime's message, a static string; empty if none failed
};

}  // namespace imp
