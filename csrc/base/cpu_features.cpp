// Asks the CPU: on x86 through the compiler's run-time library, which also asks whether the system saves the
// registers, on ARM through the system's word for it.
#include "base/cpu_features.h"

#include <array>

#if IMP_ARM && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace imp {

namespace {

struct Isa {
  std::string_view name;
  CpuFeatures features;
};

constexpr std::array kIsas{
    Isa{"generic", {}},
    Isa{"avx2", {.avx2 = true}},
    Isa{"avx2vnni", {.avx2 = true, .avx_vnni = true}},
    Isa{"avx512", {.avx2 = true, .avx512 = true}},
    Isa{"avx512vnni", {.avx2 = true, .avx512 = true, .avx512_vnni = true}},
    Isa{"avx512bf16", {.avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true}},
    Isa{"neondot", {.neon_dot = true}},
};

constexpr std::array kNames = [] {
  std::array<std::string_view, kIsas.size()> names{};
  for (std::size_t i = 0; i < kIsas.size(); ++i) names[i] = kIsas[i].name;
  return names;
}();

}  // namespace

CpuFeatures detect_cpu_features() noexcept {
  CpuFeatures features;
#if IMP_X86
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  features.avx_vnni = features.avx2 && __builtin_cpu_supports("avxvnni");
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  features.avx512_vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
#elif IMP_ARM && defined(__linux__)
  features.neon_dot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
  return features;
}

std::span<const std::string_view> known_isas() noexcept {
  return kNames;
}

std::optional<CpuFeatures> isa_features(std::string_view isa) noexcept {
  for (const Isa& known : kIsas) {
    if (known.name == isa) return known.features;
  }
  return std::nullopt;
}

bool includes(const CpuFeatures& features, const CpuFeatures& needed) noexcept {
  return features.avx2 >= needed.avx2 && features.avx_vnni >= needed.avx_vnni && features.avx512 >= needed.avx512 &&
         features.avx512_vnni >= needed.avx512_vnni && features.avx512_bf16 >= needed.avx512_bf16 &&
         features.neon_dot >= needed.neon_dot;
}

std::string_view best_isa(const CpuFeatures& features) noexcept {
  std::string_view best;
  for (const Isa& known : kIsas) {
    if (includes(features, known.features)) best = known.name;
  }
  return best;
}

std::string isa_names(const CpuFeatures& features) {
  std::string names;
  for (const Isa& known : kIsas) {
    if (!includes(features, known.features)) continue;
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

}  // namespace imp
