// Vectors for the probe loops, reads of memory into them, and touch(), which keeps the compiler from optimizing loops
// away. The including file defines kVectorBytes in its anonymous namespace.
#include <cstddef>
#include <cstdint>

namespace imp::cpu {
namespace {

using Wide = std::uint64_t __attribute__((vector_size(kVectorBytes)));
using Floats = float __attribute__((vector_size(kVectorBytes)));
using Ints = std::int32_t __attribute__((vector_size(kVectorBytes)));

// Makes the compiler assume that a register has changed, so that it merges neither equal chains nor rounds.
template <class Vector>
inline void touch(Vector& value) {
#if defined(__aarch64__)
  __asm__ volatile("" : "+w"(value));
#else
  __asm__ volatile("" : "+v"(value));
#endif
}

inline Wide load_wide(const std::byte* from) {
  Wide value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
inline std::uint64_t sum_wide(Wide a) {
  std::uint64_t sum = 0;
  for (int i = 0; i < kVectorBytes / 8; ++i) sum += a[i];
  return sum;
}

}  // namespace
}  // namespace imp::cpu
