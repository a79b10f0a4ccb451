// Checks the setting and writes the error messages.
#include "backend/cpu/cpu_caps.h"

#include <string>

#include "base/error.h"

namespace imp::cpu {

CpuFeatures features_named(std::string_view isa, CpuFeatures here) {
  if (isa == "auto") return here;
  if (const auto named = isa_features(isa)) return *named;
  std::string known = "auto";
  for (const std::string_view name : known_isas()) known.append(", ").append(name);
  throw FieldInvalid("isa", "'" + std::string(isa) + "', expected one of: " + known + ", or some joined with +");
}

CpuFeatures resolve_isa(std::string_view isa, CpuFeatures here) {
  const CpuFeatures wanted = features_named(isa, here);
  if (!here.includes(wanted)) {
    throw DeviceError(Reason::DEVICE_MISSING, "isa: this CPU lacks " + missing_features(here, wanted) + ", which " +
                                                  std::string(isa) + " means; it has: " + isa_names(here));
  }
  return wanted;
}

DeviceCaps caps_of(CpuFeatures features) {
  DeviceCaps caps;
  caps.cpu = features;
  caps.processor = detect_processor();
  return caps;
}

DeviceCaps cpu_caps(std::string_view isa) {
  return caps_of(resolve_isa(isa));
}

}  // namespace imp::cpu
