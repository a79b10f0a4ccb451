// Probes with AVX2 and AVX-VNNI instructions.
#include <immintrin.h>

#include "backend/cpu/probe_loops.h"

namespace imp::cpu {
namespace {

using Wide = std::uint64_t __attribute__((vector_size(32)));
using Floats = float __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
constexpr int kChains = 10;
constexpr std::int64_t kFloatOps = 16, kIntOps = 64;

inline Wide load_wide(const std::byte* from) {
  return (Wide)_mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}
inline Wide add_wide(Wide a, Wide b) {
  return a + b;
}
inline std::uint64_t sum_wide(Wide a) {
  return a[0] + a[1] + a[2] + a[3];
}
inline Floats multiply_add(Floats sum, Floats factor, Floats addend) {
  return _mm256_fmadd_ps(sum, factor, addend);
}
inline Ints dot_add(Ints sum, Ints first, Ints second) {
  return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)first, (__m256i)second);
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probe_loops.inl"

namespace imp::cpu {

ProbeLoops probe_loops_avx2vnni() {
  return loops();
}

}  // namespace imp::cpu
