// Reads the identification leaves of CPUID.
#include "base/processor.h"

#if IMP_X86
#include <cpuid.h>

#include <array>
#include <cstring>
#endif

namespace imp {

#if IMP_X86

Processor detect_processor() noexcept {
  unsigned highest = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &highest, &ebx, &ecx, &edx) == 0) return {};
  const bool is_amd = ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx;
  unsigned eax = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return {};
  // A family of 15 or more is a sum of two fields. The model then has four high bits of its own.
  const unsigned family = eax >> 8 & 15U, model = eax >> 4 & 15U;
  return {.maker = is_amd ? ProcessorMaker::amd : ProcessorMaker::other,
          .family = static_cast<int>(family == 15 ? family + (eax >> 20 & 255U) : family),
          .model = static_cast<int>(family == 6 || family == 15 ? model | (eax >> 16 & 15U) << 4 : model)};
}

std::string processor_name() {
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
}

#else

Processor detect_processor() noexcept {
  return {};
}

std::string processor_name() {
  return "CPU";
}

#endif

}  // namespace imp
