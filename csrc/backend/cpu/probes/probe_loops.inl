// Loops that keep a core's execution ports busy. The including file includes probe_vectors.inl first. In its anonymous
// namespace it defines kChains, multiply_add and dot_add on `Floats` and `Ints`, and kFloatOps and kIntOps, the
// operations of one call.
#include "backend/cpu/probes/probe_loops.h"

namespace imp::cpu {
namespace {

// Four streams, the fastest way to read memory.
std::uint64_t read_streams(const std::byte* bytes, std::size_t n_bytes) {
  constexpr std::size_t kStreams = 4;
  const std::size_t length = n_bytes / kStreams;
  Wide sums[kStreams] = {};
  for (std::size_t i = 0; i < length; i += sizeof(Wide)) {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < kStreams; ++s) sums[s] += load_wide(bytes + s * length + i);
  }
  return sum_wide((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

float multiply_floats(std::int64_t n_rounds) {
  Floats sums[kChains] = {};
  for (int c = 0; c < kChains; ++c) touch(sums[c]);
  Floats factor = Floats{} + 0.999F, addend = Floats{} + 0.001F;
  for (std::int64_t i = 0; i < n_rounds; ++i) {
    touch(factor);
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) sums[c] = multiply_add(sums[c], factor, addend);
  }
  Floats total = {};
  for (int c = 0; c < kChains; ++c) total += sums[c];
  return total[0];
}

std::int32_t multiply_ints(std::int64_t n_rounds) {
  Ints sums[kChains] = {};
  for (int c = 0; c < kChains; ++c) touch(sums[c]);
  Ints first = Ints{} + 0x03030303, second = Ints{} + 0x05050505;
  for (std::int64_t i = 0; i < n_rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) {
      touch(first);  // in each chain, so that the compiler shares no part of a dot product
      sums[c] = dot_add(sums[c], first, second);
    }
  }
  Ints total = {};
  for (int c = 0; c < kChains; ++c) total ^= sums[c];
  return total[0];
}

ProbeLoops loops() {
  // Without a bfloat16 instruction, bfloat16 is widened to float32.
  return {read_streams,        multiply_floats,   multiply_ints,      multiply_floats,
          kChains * kFloatOps, kChains * kIntOps, kChains * kFloatOps};
}

}  // namespace
}  // namespace imp::cpu
