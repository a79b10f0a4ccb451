// How a thread rounds and what it does with denormals: set for the time of a computation, restored afterwards.
#pragma once

#include <cstdint>

#if IMP_X86
#include <xmmintrin.h>
#endif

namespace imp {

#if IMP_X86
using FloatMode = unsigned;
inline FloatMode float_mode() noexcept {
  return _mm_getcsr();
}
inline void set_float_mode(FloatMode mode) noexcept {
  _mm_setcsr(mode);
}
// All exceptions masked (0x1f80), flush to zero (0x8000), denormals are zero (0x0040), rounding bits clear.
inline constexpr FloatMode kComputeMode = 0x1f80U | 0x8000U | 0x0040U;
#elif IMP_ARM
using FloatMode = std::uint64_t;
inline FloatMode float_mode() noexcept {
  FloatMode mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode) : : "memory");
  return mode;
}
inline void set_float_mode(FloatMode mode) noexcept {
  __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
}
// FZ flushes what comes in and what goes out; no traps, rounding bits clear.
inline constexpr FloatMode kComputeMode = std::uint64_t{1} << 24;
#endif

// While it lives, this thread rounds to nearest, flushes denormal results to zero and reads denormal inputs as zero:
// some vector instructions know no other mode, so this is the one in which all instruction sets agree. They do but for
// one result: what lies below 2^-126, the least normal number, by no more than 2^-151 is rounded up to it on x86, and
// is zero on ARM, which looks before it rounds. On other processors it does nothing.
class ComputeFloatMode {
 public:
#if IMP_X86 || IMP_ARM
  ComputeFloatMode() noexcept : before_(float_mode()) { set_float_mode(kComputeMode); }
  ~ComputeFloatMode() { set_float_mode(before_); }
#else
  ComputeFloatMode() noexcept {}
#endif
  ComputeFloatMode(const ComputeFloatMode&) = delete;
  ComputeFloatMode& operator=(const ComputeFloatMode&) = delete;

#if IMP_X86 || IMP_ARM
 private:
  FloatMode before_;
#endif
};

}  // namespace imp
