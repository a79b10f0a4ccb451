// Probes with AVX-512 VNNI instructions and those that multiply pairs of bfloat16.
#include <immintrin.h>

#include "backend/cpu/probes/probe_loops.h"

namespace imp::cpu {
namespace {

constexpr int kVectorBytes = 64;
constexpr int kChains = 16;
constexpr std::int64_t kPairOps = 64;

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_vectors.inl"

namespace imp::cpu {
namespace {

float multiply_pairs(std::int64_t n_rounds) {
  Floats sums[kChains] = {};
  for (int c = 0; c < kChains; ++c) touch(sums[c]);
  Ints first = Ints{} + 0x3F803F80, second = Ints{} + 0x3C003C00;  // 1 and 1/128, twice in each
  for (std::int64_t i = 0; i < n_rounds; ++i) {
    touch(first);
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbf16_ps(sums[c], (__m512bh)first, (__m512bh)second);
  }
  Floats total = {};
  for (int c = 0; c < kChains; ++c) total += sums[c];
  return total[0];
}

}  // namespace

ProbeLoops probe_loops_avx512bf16() {
  ProbeLoops found = probe_loops_avx512vnni();
  found.multiply_bf16 = multiply_pairs;
  found.bf16_ops = kChains * kPairOps;
  return found;
}

}  // namespace imp::cpu
