// The vectors that a probe's loops keep busy, kVectorBytes wide, which the including file defines in its anonymous
// namespace; and how memory is read in them.
#include <cstddef>
#include <cstdint>

namespace imp::cpu {
namespace {

using Wide = std::uint64_t __attribute__((vector_size(kVectorBytes)));
using Floats = float __attribute__((vector_size(kVectorBytes)));
using Ints = std::int32_t __attribute__((vector_size(kVectorBytes)));

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
