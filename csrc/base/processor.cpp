// Reads the identification leaves of CPUID.
#include "base/processor.h"

#if IMP_X86
#include <cpuid.h>

#include <array>
#include <cstring>
#endif

namespace imp {

#if IMP_X86

namespace {

// The maker's signature, from leaf 0.
ProcessorMaker maker_of(unsigned ebx, unsigned ecx, unsigned edx) noexcept {
  if (ebx == signature_AMD_ebx && ecx == signature_AMD_ecx && edx == signature_AMD_edx) return ProcessorMaker::amd;
  if (ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx && edx == signature_INTEL_edx) {
    return ProcessorMaker::intel;
  }
  return ProcessorMaker::other;
}

}  // namespace

Processor detect_processor() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return {};
  const ProcessorMaker maker = maker_of(ebx, ecx, edx);
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return {};
  // A family of 15 or more is a sum of two fields. The model then has four high bits of its own.
  const unsigned family = eax >> 8 & 15U, model = eax >> 4 & 15U;
  return {.maker = maker,
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
