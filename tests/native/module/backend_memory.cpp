// A backend's memory by the kind of its device.
#include "native/module/backend_memory.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "backend/cpu/cpu_backend.h"
#include "native/gpu/backend_memory.h"

namespace imp::cpu {

struct TestAccess {
  static void fill_scratch(CpuBackend& backend, std::uint8_t value) {
    fill(backend.gemm_, value);
    std::fill_n(backend.attention_.scratch_.get(), backend.attention_.scratch_bytes(), std::byte{value});
    std::fill_n(backend.sampler_.memory_.get(), backend.sampler_.scratch_bytes(), std::byte{value});
    const auto n_threads = static_cast<std::size_t>(backend.n_threads());
    std::fill_n(backend.embed_scratch_.get(), backend.embed_row_bytes_ * n_threads, std::byte{value});
  }

 private:
  static void fill(GemmRunner& gemm, std::uint8_t value) {
    for (std::size_t format = 0; format < gemm.prepared_.size(); ++format) {
      std::fill_n(gemm.prepared_[format].get(), gemm.prepared_bytes_[format], std::byte{value});
    }
    const auto n_threads = static_cast<std::size_t>(gemm.pool_.n_threads());
    std::fill_n(gemm.scratch_.get(), gemm.scratch_stride_ * n_threads, std::byte{value});
    std::fill_n(gemm.gated_.get(), gemm.gated_floats_ * sizeof(float) * n_threads, std::byte{value});
  }
};

}  // namespace imp::cpu

namespace imp::bindings {
namespace {

// The functions of one kind of GPU.
struct Gpu {
  decltype(&cuda_emulated::fill_scratch) fill_scratch;
  decltype(&cuda_emulated::write_device) write_device;
  decltype(&cuda_emulated::read_device) read_device;
};

Gpu gpu_of(const Backend& backend) {
  if (cuda_emulated::is_of_this_device(backend)) {
    return {&cuda_emulated::fill_scratch, &cuda_emulated::write_device, &cuda_emulated::read_device};
  }
#if IMP_CUDA
  if (cuda::is_of_this_device(backend)) return {&cuda::fill_scratch, &cuda::write_device, &cuda::read_device};
#endif
  throw std::invalid_argument("neither on the CPU nor on a GPU");
}

cpu::CpuBackend* cpu_of(Backend& backend) {
  return dynamic_cast<cpu::CpuBackend*>(&backend);
}

}  // namespace

void fill_scratch(Backend& backend, std::uint8_t value) {
  if (auto* const cpu = cpu_of(backend)) return cpu::TestAccess::fill_scratch(*cpu, value);
  gpu_of(backend).fill_scratch(backend, value);
}

void write_device(Backend& backend, void* to, const void* from, std::size_t n_bytes) {
  if (cpu_of(backend) == nullptr) return gpu_of(backend).write_device(backend, to, from, n_bytes);
  std::memcpy(to, from, n_bytes);
}

void read_device(Backend& backend, void* to, const void* from, std::size_t n_bytes) {
  if (cpu_of(backend) == nullptr) return gpu_of(backend).read_device(backend, to, from, n_bytes);
  std::memcpy(to, from, n_bytes);
}

std::span<std::byte> memory_of(const KvPool& pool) {
  if (const auto* const cpu = dynamic_cast<const cpu::CpuKvPool*>(&pool)) {
    return {cpu->k_block(0, 0).data(), pool.n_bytes()};
  }
  const std::span<std::byte> emulated = cuda_emulated::memory_of(pool);
#if IMP_CUDA
  if (emulated.empty()) return cuda::memory_of(pool);
#endif
  return emulated;
}

}  // namespace imp::bindings
