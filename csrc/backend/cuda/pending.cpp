// Parts that are being built.
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm/gemm_runner.h"
#include "backend/cuda/gemm/kernel_list.h"
#include "backend/cuda/gemm/load_linears.h"
#include "base/error.h"

namespace imp::cuda {

// GEMM
std::vector<std::unique_ptr<Linear>> load_cuda_linears(std::span<const LinearRequest>, DeviceArena&, ThreadPool&,
                                                       Stream&, const BytesRead&) {
  IMP_CHECK(false);
  return {};
}
GemmRunner::GemmRunner(const GemmRegistry& registry, Stream& stream) : registry_(registry), stream_(stream) {}
void GemmRunner::reserve(const GemmNeeds&) {}
std::size_t GemmRunner::scratch_bytes(const GemmNeeds&) const {
  return 0;
}
std::size_t GemmRunner::scratch_bytes() const noexcept {
  return 0;
}
void GemmRunner::fill_scratch(std::uint8_t) {
  static_cast<void>(registry_), static_cast<void>(stream_);
}
void GemmRunner::run(Rows, std::span<const LinearTerm>) {}
void GemmRunner::run_gated(Rows, const GatedTerm&, GatedActivation) {}
void GemmRunner::run_to_experts(Rows, const ExpertRows&, std::span<const ExpertTerm>) {}
void GemmRunner::run_of_experts(Rows, const ExpertRows&, const ExpertTerm&) {}
std::vector<std::uint64_t> GemmRunner::launches() const {
  return {};
}
void embed(Stream&, const std::int32_t*, int, const std::byte*, DType, WeightLayout, std::int64_t, float, Rows) {}


}  // namespace imp::cuda
