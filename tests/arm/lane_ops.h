// The vector operations of lanes.h on plain data: one function per instruction set, and one in scalar code.
#pragma once

#include <cstdint>

namespace proof {

struct LaneInputs {
  float a[16], b[16], c[16];
  std::int32_t i[16], j[16];
  std::uint16_t halves[16];
  std::uint8_t bytes[16];
  int n;  // 0 to 15
};

inline constexpr int kMaxLaneResults = 80;

struct LaneOutputs {
  const char* names[kMaxLaneResults];
  std::uint32_t words[kMaxLaneResults][16];
  int n_results;
};

using LaneOps = void (*)(const LaneInputs& in, LaneOutputs& out);
void lane_ops_scalar(const LaneInputs& in, LaneOutputs& out);
void lane_ops_generic(const LaneInputs& in, LaneOutputs& out);
void lane_ops_avx2(const LaneInputs& in, LaneOutputs& out);
void lane_ops_avx512(const LaneInputs& in, LaneOutputs& out);

}  // namespace proof
