// The vector instructions that the CPU and the operating system support, as a set of features, and names for such sets.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace imp {

// The features that kernels require. A CPU may have any of them without the others, so they have no order.
enum class CpuFeature : std::uint8_t {
  avx2,  // with FMA and F16C
  avx_vnni,
  avx512,  // F, BW, VL, DQ
  avx512_vnni,
  avx512_bf16,
  amx_int8,   // tiles and their int8 products, which the system lets this process use
  neon_dot,   // AArch64's int8 dot products; every AArch64 CPU has NEON
  neon_i8mm,  // its int8 matrix products
};
inline constexpr int kNumCpuFeatures = 8;

class CpuFeatures {
 public:
  constexpr CpuFeatures() = default;
  constexpr CpuFeatures(std::initializer_list<CpuFeature> features) noexcept {
    for (const CpuFeature feature : features) add(feature);
  }

  constexpr void add(CpuFeature feature) noexcept { bits_ |= bit(feature); }
  constexpr void add(CpuFeatures others) noexcept { bits_ |= others.bits_; }
  constexpr bool has(CpuFeature feature) const noexcept { return (bits_ & bit(feature)) != 0; }
  constexpr bool includes(CpuFeatures needed) const noexcept { return (bits_ & needed.bits_) == needed.bits_; }
  constexpr bool operator==(const CpuFeatures&) const = default;

 private:
  static constexpr std::uint32_t bit(CpuFeature feature) noexcept { return 1U << static_cast<unsigned>(feature); }

  std::uint32_t bits_ = 0;
};

// A source file whose name ends in one of these words is compiled for these features, and its kernels need them.
namespace needs {
inline constexpr CpuFeatures generic{};
inline constexpr CpuFeatures avx2{CpuFeature::avx2};
inline constexpr CpuFeatures avx2vnni{CpuFeature::avx2, CpuFeature::avx_vnni};
inline constexpr CpuFeatures avx512{CpuFeature::avx2, CpuFeature::avx512};
inline constexpr CpuFeatures avx512vnni{CpuFeature::avx2, CpuFeature::avx512, CpuFeature::avx512_vnni};
inline constexpr CpuFeatures avx512bf16{CpuFeature::avx2, CpuFeature::avx512, CpuFeature::avx512_vnni,
                                        CpuFeature::avx512_bf16};
inline constexpr CpuFeatures amxint8{CpuFeature::avx2, CpuFeature::avx512, CpuFeature::avx512_vnni,
                                     CpuFeature::amx_int8};
inline constexpr CpuFeatures neondot{CpuFeature::neon_dot};
inline constexpr CpuFeatures neoni8mm{CpuFeature::neon_dot, CpuFeature::neon_i8mm};
}  // namespace needs

// The features of this machine.
CpuFeatures detect_cpu_features() noexcept;

// The name for messages: "AVX-512 VNNI".
std::string_view name_of(CpuFeature feature) noexcept;
// The features of `needed` that `here` lacks, as "AVX2 with FMA and F16C and AVX-VNNI"; empty if it has all.
std::string missing_features(CpuFeatures here, CpuFeatures needed);

// The words of the setting `device.isa`. Each names a set of features: "avx2vnni" is AVX2 and AVX-VNNI.
std::span<const std::string_view> known_isas() noexcept;
// The features that "avx512bf16" or a union such as "avx2vnni+avx512bf16" names; empty if a word is unknown.
std::optional<CpuFeatures> isa_features(std::string_view isa) noexcept;
// The shortest name for the set that isa_features() can read, such as "avx2vnni+avx512bf16"; "generic" if it is empty.
std::string isa_name(CpuFeatures features);
// Every known_isas() word that `features` includes, for messages: "generic, avx2".
std::string isa_names(CpuFeatures features);

}  // namespace imp
