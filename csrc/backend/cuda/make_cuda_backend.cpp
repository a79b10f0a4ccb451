// Finds the GPU, or says why there is none.
#include "backend/cuda/make_cuda_backend.h"

#include <string>

#include "backend/cuda/cuda_backend.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// What the runtime's word means here.
std::string why(const Status& status, const DeviceFacts& facts) {
  const std::string code = std::string(status.name) + " (" + std::to_string(status.code) + ")";
  if (status.kind != StatusKind::absent) return "the GPU does not answer: " + code;
  if (facts.driver_version == 0) return "no NVIDIA driver here: " + code;
  if (facts.driver_version < facts.runtime_version) {
    return "the NVIDIA driver serves CUDA up to " + version_text(facts.driver_version) + ", expected " +
           version_text(facts.runtime_version) + " or later: " + code;
  }
  return "no GPU that this process may use: " + code;
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const DeviceOptions& options) {
  DeviceFacts facts;
  const Status status = find_device(facts);
  if (!status.is_ok()) throw DeviceError(Reason::DEVICE_MISSING, "device cuda: " + why(status, facts));
  constexpr int kLeastCapability = 80;
  if (facts.caps.compute_capability < kLeastCapability) {
    throw DeviceError(Reason::DEVICE_MISSING, "device cuda: " + facts.name + " has compute capability " +
                                                  std::to_string(facts.caps.compute_capability / 10) + "." +
                                                  std::to_string(facts.caps.compute_capability % 10) +
                                                  ", expected 8.0 or later");
  }
  return std::make_unique<CudaBackend>(facts, options);
}

}  // namespace imp::cuda
