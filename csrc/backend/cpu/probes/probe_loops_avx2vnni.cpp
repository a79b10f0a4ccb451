// Probes with AVX2 and AVX-VNNI instructions.
#include <immintrin.h>

#include "backend/cpu/probes/probe_loops.h"

namespace imp::cpu {
namespace {

constexpr int kVectorBytes = 32;
constexpr int kChains = 10;
constexpr std::int64_t kFloatOps = 16, kIntOps = 64;

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_vectors.inl"

namespace imp::cpu {
namespace {

inline Floats multiply_add(Floats sum, Floats factor, Floats addend) {
  return _mm256_fmadd_ps(sum, factor, addend);
}
inline Ints dot_add(Ints sum, Ints first, Ints second) {
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)first, (__m256i)second);
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_loops.inl"

namespace imp::cpu {

ProbeLoops probe_loops_avx2vnni() {
  return loops();
}

}  // namespace imp::cpu
