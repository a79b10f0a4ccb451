// Probes on any CPU: the compiler's 16-byte vectors.
#include "backend/cpu/probes/probe_loops.h"

namespace imp::cpu {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kChains = 8;
constexpr std::int64_t kFloatOps = 8, kIntOps = 8;  // without a dot product one element is one multiply and one add

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_vectors.inl"

namespace imp::cpu {
namespace {

inline Floats multiply_add(Floats sum, Floats factor, Floats addend) {
  return sum * factor + addend;
}
inline Ints dot_add(Ints sum, Ints first, Ints second) {
  return sum + first * second;
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_loops.inl"

namespace imp::cpu {

ProbeLoops probe_loops_generic() {
  return loops();
}

}  // namespace imp::cpu
