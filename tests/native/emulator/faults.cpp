// Parses IMP_EMULATED_GPU. An environment variable also reaches a server that a test starts.
#include "native/emulator/faults.h"

#include <cstdlib>
#include <sstream>
#include <string>

#include "native/emulator/emu.h"

namespace imp::cuda::emu {
namespace {

constexpr Status kNoDriver = {StatusKind::absent, 35, "cudaErrorInsufficientDriver"};
constexpr Status kNoDevice = {StatusKind::absent, 100, "cudaErrorNoDevice"};
constexpr Status kBroken = {StatusKind::fault, 802, "cudaErrorSystemNotReady"};

void apply(const std::string& name, std::int64_t value, Faults& faults) {
  if (name == "no_driver") {
    faults.device = kNoDriver;
    faults.driver_version = 0;
  } else if (name == "driver_version") {
    faults.driver_version = static_cast<int>(value);
    if (value < 13000) faults.device = kNoDriver;
  } else if (name == "no_device") {
    faults.device = kNoDevice;
  } else if (name == "broken") {
    faults.device = kBroken;
  } else if (name == "compute_capability") {
    faults.compute_capability = static_cast<int>(value);
  } else if (name == "wgmma") {
    faults.wgmma = true;
  } else if (name == "total_bytes") {
    faults.total_bytes = static_cast<std::size_t>(value);
  } else if (name == "launches_before_fault") {
    faults.launches_before_fault = value;
  } else if (name == "only_90a") {
    faults.only_90a = true;
  } else if (name == "failing_allocation") {
    faults.failing_allocation = value;
  } else if (name == "captures_fail") {
    faults.captures_fail = true;
  } else if (name == "plain_tiles") {
    faults.plain_tiles = true;
  } else if (name == "late_tiles") {
    faults.late_tiles = true;
  } else {
    fail("IMP_EMULATED_GPU has an unknown word");
  }
}

}  // namespace

Faults faults_of_environment() {
  Faults faults;
  const char* const text = std::getenv("IMP_EMULATED_GPU");
  std::istringstream words(text != nullptr ? text : "");
  for (std::string word; words >> word;) {
    const std::size_t sign = word.find('=');
    apply(word.substr(0, sign), sign == std::string::npos ? 0 : std::stoll(word.substr(sign + 1)), faults);
  }
  return faults;
}

}  // namespace imp::cuda::emu
