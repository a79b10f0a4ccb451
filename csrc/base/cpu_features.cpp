// Queries the CPU: on x86 through the compiler's run-time library, which also checks that the system saves the
// registers; on ARM through the system.
#include "base/cpu_features.h"

#include <algorithm>
#include <array>

#if IMP_ARM && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif IMP_X86 && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace imp {

namespace {

struct Isa {
  std::string_view name;
  CpuFeatures features;
};

// A set comes before the sets that include it: isa_name() relies on this order.
constexpr std::array kIsas{
    Isa{"generic", needs::generic},       Isa{"avx2", needs::avx2},
    Isa{"avx2vnni", needs::avx2vnni},     Isa{"avx512", needs::avx512},
    Isa{"avx512vnni", needs::avx512vnni}, Isa{"avx512bf16", needs::avx512bf16},
    Isa{"amxint8", needs::amxint8},       Isa{"neondot", needs::neondot},
    Isa{"neoni8mm", needs::neoni8mm},
};

constexpr std::array kNames = [] {
  std::array<std::string_view, kIsas.size()> names{};
  for (std::size_t i = 0; i < kIsas.size(); ++i) names[i] = kIsas[i].name;
  return names;
}();

constexpr std::array<std::string_view, kNumCpuFeatures> kFeatureNames{
    "AVX2 with FMA and F16C", "AVX-VNNI", "AVX-512 (F, BW, VL, DQ)", "AVX-512 VNNI",
    "AVX-512 BF16",           "AMX int8", "NEON's dot product",      "NEON's matrix product",
};

const Isa* find(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kIsas, name, &Isa::name);
  return found == kIsas.end() ? nullptr : found;
}

#if IMP_X86
// Linux keeps 8 KiB of tile data for a process only once it has asked. A container's sandbox may refuse.
bool may_use_tiles() noexcept {
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  static const bool may = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
#else
  return false;
#endif
}
#endif

}  // namespace

CpuFeatures detect_cpu_features() noexcept {
  CpuFeatures features;
#if IMP_X86
  // Each kernel needs the features of the smaller sets too, so a feature without them counts as missing.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) return {};
  features.add(CpuFeature::avx2);
  if (__builtin_cpu_supports("avxvnni")) features.add(CpuFeature::avx_vnni);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) {
    return features;
  }
  features.add(CpuFeature::avx512);
  if (!__builtin_cpu_supports("avx512vnni")) return features;
  features.add(CpuFeature::avx512_vnni);
  if (__builtin_cpu_supports("avx512bf16")) features.add(CpuFeature::avx512_bf16);
  if (__builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") && may_use_tiles()) {
    features.add(CpuFeature::amx_int8);
  }
#elif IMP_ARM && defined(__linux__)
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) return features;
  features.add(CpuFeature::neon_dot);
  constexpr unsigned long kI8mm = 1UL << 13;  // HWCAP2_I8MM, which older systems' headers lack
  if ((getauxval(AT_HWCAP2) & kI8mm) != 0) features.add(CpuFeature::neon_i8mm);
#endif
  return features;
}

std::string_view name_of(CpuFeature feature) noexcept {
  return kFeatureNames[static_cast<std::size_t>(feature)];
}

std::string missing_features(CpuFeatures here, CpuFeatures needed) {
  std::string names;
  for (int i = 0; i < kNumCpuFeatures; ++i) {
    const auto feature = static_cast<CpuFeature>(i);
    if (!needed.has(feature) || here.has(feature)) continue;
    if (!names.empty()) names += " and ";
    names += name_of(feature);
  }
  return names;
}

std::span<const std::string_view> known_isas() noexcept {
  return kNames;
}

std::optional<CpuFeatures> isa_features(std::string_view isa) noexcept {
  CpuFeatures features;
  while (true) {
    const std::size_t end = isa.find('+');
    const Isa* const known = find(isa.substr(0, end));
    if (known == nullptr) return std::nullopt;
    features.add(known->features);
    if (end == std::string_view::npos) return features;
    isa.remove_prefix(end + 1);
  }
}

std::string isa_name(CpuFeatures features) {
  std::string name;
  for (std::size_t i = 0; i < kIsas.size(); ++i) {
    if (!features.includes(kIsas[i].features)) continue;
    const auto says_more = [&](const Isa& other) {
      return features.includes(other.features) && other.features.includes(kIsas[i].features);
    };
    if (std::any_of(kIsas.begin() + i + 1, kIsas.end(), says_more)) continue;
    if (!name.empty()) name += '+';
    name += kIsas[i].name;
  }
  return name;
}

std::string isa_names(CpuFeatures features) {
  std::string names;
  for (const Isa& known : kIsas) {
    if (!features.includes(known.features)) continue;
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

}  // namespace imp
