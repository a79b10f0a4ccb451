// Sets a thread's rounding and denormal modes for a computation, and restores them afterwards.
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
// FZ flushes inputs and results; no traps, rounding bits clear.
inline constexpr FloatMode kComputeMode = std::uint64_t{1} << 24;
#endif

// While it lives, this thread rounds to nearest, flushes denormal results to zero and reads denormal inputs as zero.
// Some vector instructions have only this mode, so all instruction sets agree in it, with one exception: x86 detects
// underflow after rounding and keeps a result that rounds up to 2^-126, the least normal number. ARM detects it before
// rounding and flushes such a result (at most 2^-151 too small). Does nothing on other processors.
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
