// Probes with AVX-512 instructions.
#include <immintrin.h>

#include "backend/cpu/probes/probe_loops.h"

namespace imp::cpu {
namespace {

constexpr int kVectorBytes = 64;
constexpr int kChains = 16;
constexpr std::int64_t kFloatOps = 32, kIntOps = 128;

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_vectors.inl"

namespace imp::cpu {
namespace {

inline Floats multiply_add(Floats sum, Floats factor, Floats addend) {
  return _mm512_fmadd_ps(sum, factor, addend);
}
// The three instructions of one dot product.
inline Ints dot_add(Ints sum, Ints first, Ints second) {
  const __m512i pairs = _mm512_maddubs_epi16((__m512i)first, (__m512i)second);
  return (Ints)_mm512_add_epi32((__m512i)sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_loops.inl"

namespace imp::cpu {

ProbeLoops probe_loops_avx512() {
  return loops();
}

}  // namespace imp::cpu
