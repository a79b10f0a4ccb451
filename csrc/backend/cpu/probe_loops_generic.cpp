// Probes on any CPU: the compiler's 16-byte vectors.
#include "backend/cpu/probe_loops.h"

namespace imp::cpu {
namespace {

using Wide = std::uint64_t __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(16)));
using Ints = std::int32_t __attribute__((vector_size(16)));
constexpr int kChains = 8;
constexpr std::int64_t kFloatOps = 8, kIntOps = 8;  // without a dot product one element is one multiply and one add

inline Wide load_wide(const std::byte* from) {
  Wide value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline Wide add_wide(Wide a, Wide b) {
  return a + b;
}
inline std::uint64_t sum_wide(Wide a) {
  return a[0] + a[1];
}
inline Floats multiply_add(Floats sum, Floats factor, Floats addend) {
  return sum * factor + addend;
}
inline Ints dot_add(Ints sum, Ints first, Ints second) {
  return sum + first * second;
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probe_loops.inl"

namespace imp::cpu {

ProbeLoops probe_loops_generic() {
  return loops();
}

}  // namespace imp::cpu
