// The devices by name.
#include "backend/make_backend.h"

#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/make_cpu_backend.h"
#include "base/cpu_features.h"
#include "base/error.h"

#if IMP_CUDA
#include "backend/cuda/make_cuda_backend.h"
#endif

namespace imp {

namespace {

// The instruction set to use: the user's word, checked, or the best there is.
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

std::unique_ptr<Backend> make_cpu(const DeviceOptions& options) {
  const DeviceCaps caps = cpu_caps(options.isa);
  return cpu::make_cpu_backend(caps, resolve_isa(options.isa, detect_cpu_features()),
                               {.n_threads = options.n_threads, .cpus = options.cpus});
}

#if IMP_CUDA
std::unique_ptr<Backend> make_cuda(const DeviceOptions& options) { return cuda::make_cuda_backend(options); }
#else
std::unique_ptr<Backend> make_cuda(const DeviceOptions&) {
  throw DeviceError(Reason::DEVICE_MISSING, "device cuda: this imp was built without CUDA, expected cpu");
}
#endif

}  // namespace

DeviceCaps cpu_caps(std::string_view isa) {
  const CpuFeatures features = *isa_features(resolve_isa(isa, detect_cpu_features()));
  DeviceCaps caps;
  caps.avx2 = features.avx2;
  caps.avx512 = features.avx512;
  caps.avx512_vnni = features.avx512_vnni;
  caps.avx512_bf16 = features.avx512_bf16;
  return caps;
}

std::span<const GemmKernel> cpu_kernels() noexcept { return cpu::kernel_list(); }

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  if (options.kind == "cpu") return make_cpu(options);
  if (options.kind == "cuda") return make_cuda(options);
  throw InvalidArgument(Reason::FIELD_INVALID, "device: '" + options.kind + "', expected one of: cpu, cuda");
}

}  // namespace imp
