// The checks, and the copy of the CPU's features into the table that both backends share.
#include "backend/cpu/cpu_caps.h"

#include <string>

#include "base/error.h"

namespace imp::cpu {

std::string_view resolve_isa(std::string_view isa, const CpuFeatures& here) {
  if (isa == "auto") return best_isa(here);
  const auto wanted = isa_features(isa);
  if (!wanted) {
    std::string known = "auto";
    for (const std::string_view name : known_isas()) known.append(", ").append(name);
    throw InvalidArgument(Reason::FIELD_INVALID, "isa: '" + std::string(isa) + "', expected one of: " + known);
  }
  if (!includes(here, *wanted)) {
    throw DeviceError(Reason::DEVICE_MISSING,
                      "isa: this CPU lacks " + std::string(isa) + "; it has: " + isa_names(here));
  }
  return isa;
}

DeviceCaps cpu_caps(std::string_view isa) {
  // A CPU may have more than its best instruction set implies.
  const CpuFeatures features = isa == "auto" ? detect_cpu_features() : *isa_features(resolve_isa(isa));
  DeviceCaps caps;
  caps.avx2 = features.avx2;
  caps.avx_vnni = features.avx_vnni;
  caps.avx512 = features.avx512;
  caps.avx512_vnni = features.avx512_vnni;
  caps.avx512_bf16 = features.avx512_bf16;
  caps.neon_dot = features.neon_dot;
  return caps;
}

}  // namespace imp::cpu
