// Probes with AArch64's NEON and dot-product instructions.
#include <arm_neon.h>

#include "backend/cpu/probes/probe_loops.h"

namespace imp::cpu {
namespace {

constexpr int kVectorBytes = 16;
constexpr int kChains = 16;
constexpr std::int64_t kFloatOps = 8, kIntOps = 32;

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_vectors.inl"

namespace imp::cpu {
namespace {

inline Floats multiply_add(Floats sum, Floats factor, Floats addend) {
  return (Floats)vfmaq_f32((float32x4_t)addend, (float32x4_t)sum, (float32x4_t)factor);
}
inline Ints dot_add(Ints sum, Ints first, Ints second) {
  return (Ints)vdotq_s32((int32x4_t)sum, (int8x16_t)first, (int8x16_t)second);
}

}  // namespace
}  // namespace imp::cpu

#include "backend/cpu/probes/probe_loops.inl"

namespace imp::cpu {

ProbeLoops probe_loops_neondot() {
  return loops();
}

}  // namespace imp::cpu
