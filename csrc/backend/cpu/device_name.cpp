// Reads the brand string that x86 processors carry.
#include "backend/cpu/device_name.h"

#if IMP_X86
#include <cpuid.h>

#include <array>
#include <cstring>
#endif

namespace imp::cpu {

std::string processor_name() {
#if IMP_X86
  constexpr unsigned kFirstLeaf = 0x80000002U;
  constexpr unsigned kLeaves = 3;  // of 16 characters
  std::array<char, 16 * kLeaves + 1> text{};
  for (unsigned leaf = 0; leaf < kLeaves; ++leaf) {
    std::array<unsigned, 4> words{};
    if (__get_cpuid(kFirstLeaf + leaf, &words[0], &words[1], &words[2], &words[3]) == 0) return "CPU";
    std::memcpy(text.data() + 16 * leaf, words.data(), 16);
  }
  const std::string name = text.data();
  const std::size_t first = name.find_first_not_of(' ');
  if (first == std::string::npos) return "CPU";
  return name.substr(first, name.find_last_not_of(' ') - first + 1);
#else
  return "CPU";
#endif
}

}  // namespace imp::cpu
