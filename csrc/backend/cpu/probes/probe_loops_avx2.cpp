// Probes with AVX2 instructions.
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
// The three instructions of one dot product.
inline Ints dot_add(Ints sum, Ints first, Ints second) {
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)first, (__m256i)second);
  return (Ints)_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_loops.inl"

namespace imp::cpu {

ProbeLoops probe_loops_avx2() {
  return loops();
}

}  // namespace imp::cpu
