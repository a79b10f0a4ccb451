// The CUDA backend's room in the build; it holds no ops so far, and says so.
#include "backend/cuda/make_cuda_backend.h"
#include "base/error.h"

namespace imp::cuda {

std::unique_ptr<Backend> make_cuda_backend(const DeviceOptions&) {
  throw DeviceError(Reason::DEVICE_MISSING, "device cuda: not built into this version of imp, expected cpu");
}

}  // namespace imp::cuda
