// Which vector instruction sets the CPU and the operating system support, and the words for them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace imp {

struct CpuFeatures {
  bool avx2 = false;  // with FMA and F16C
  bool avx_vnni = false;
  bool avx512 = false;  // F, BW, VL, DQ
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool neon_dot = false;  // AArch64's dot products of bytes; NEON itself is always there
};

// Of this machine.
CpuFeatures detect_cpu_features() noexcept;

// The words for instruction sets, the one to prefer last.
std::span<const std::string_view> known_isas() noexcept;
// What a CPU with exactly this instruction set has; empty for a word that is not known.
std::optional<CpuFeatures> isa_features(std::string_view isa) noexcept;
// Whether `features` has all of `needed`.
bool includes(const CpuFeatures& features, const CpuFeatures& needed) noexcept;
// The last of known_isas() that `features` includes.
std::string_view best_isa(const CpuFeatures& features) noexcept;
// "generic, avx2": those of known_isas() that `features` includes, for messages.
std::string isa_names(const CpuFeatures& features);

}  // namespace imp
