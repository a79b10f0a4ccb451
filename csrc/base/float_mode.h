// How a thread rounds and what it does with denormals: set for the time of a computation, restored afterwards.
#pragma once

#if IMP_X86
#include <xmmintrin.h>
#endif

namespace imp {

// While it lives, this thread rounds to nearest, flushes denormal results to zero and reads denormal inputs as zero:
// some vector instructions know no other mode, so this is the one in which all instruction sets agree. Elsewhere than
// on x86 it does nothing.
class ComputeFloatMode {
 public:
#if IMP_X86
  ComputeFloatMode() noexcept : before_(_mm_getcsr()) { _mm_setcsr(kCompute); }
  ~ComputeFloatMode() { _mm_setcsr(before_); }
#else
  ComputeFloatMode() noexcept {}
#endif
  ComputeFloatMode(const ComputeFloatMode&) = delete;
  ComputeFloatMode& operator=(const ComputeFloatMode&) = delete;

#if IMP_X86
 private:
  // All exceptions masked (0x1f80), flush to zero (0x8000), denormals are zero (0x0040), rounding bits clear.
  static constexpr unsigned kCompute = 0x1f80u | 0x8000u | 0x0040u;
  unsigned before_;
#endif
};

}  // namespace imp
