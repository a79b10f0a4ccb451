// The devices by name.
#include "backend/make_backend.h"

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/make_cpu_backend.h"
#include "base/error.h"

#if IMP_CUDA
#include "backend/cuda/make_cuda_backend.h"
#endif
#if IMP_TESTING
#include "backend/cuda/make_emulated_backend.h"
#endif

namespace imp {

namespace {

std::unique_ptr<Backend> make_cpu(const DeviceOptions& options) {
  const std::string_view isa = cpu::resolve_isa(options.isa);
  return cpu::make_cpu_backend(cpu::cpu_caps(isa), isa, options);
}

std::unique_ptr<Backend> make_emulated([[maybe_unused]] const DeviceOptions& options) {
#if IMP_TESTING
  return cuda_emulated::make_cuda_backend(options);
#else
  throw DeviceError(Reason::DEVICE_MISSING, "device cuda_emulated: this imp was built without its tests, expected cpu");
#endif
}

std::unique_ptr<Backend> make_cuda([[maybe_unused]] const DeviceOptions& options) {
#if IMP_CUDA
  return cuda::make_cuda_backend(options);
#else
  throw DeviceError(Reason::DEVICE_MISSING, "device cuda: this imp was built without CUDA, expected cpu");
#endif
}

}  // namespace

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  if (options.kind == "cpu") return make_cpu(options);
  if (options.kind == "cuda") return make_cuda(options);
  if (options.kind == "cuda_emulated") return make_emulated(options);
  throw InvalidArgument(Reason::FIELD_INVALID, "device: '" + options.kind + "', expected one of: cpu, cuda");
}

}  // namespace imp
