// The emulated GPU as a kind of device.
#include "backend/cuda/make_cuda_backend.h"
#include "backend/device_kinds.h"

namespace imp {

std::span<const DeviceKind> extra_device_kinds() noexcept {
  static constexpr DeviceKind kKinds[] = {
      {"cuda_emulated", nullptr, cuda::make_cuda_backend, cuda::kernels, cuda::known_caps}};
  return kKinds;
}

}  // namespace imp
