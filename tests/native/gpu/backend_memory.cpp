// Access to a GPU's memory for tests.
#include "native/gpu/backend_memory.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/runtime.h"

namespace imp::cuda {

struct TestAccess {
  static Stream& stream(CudaBackend& backend) { return backend.stream_; }
  static void finish(CudaBackend& backend) { backend.finish(); }

  static void fill_scratch(CudaBackend& backend, std::uint8_t value) {
    Stream& stream = backend.stream_;
    const auto fill_buffer = [&](const GemmRunner::ScratchBuffer& buffer) {
      fill(stream, buffer.memory.get(), value, buffer.n_bytes);
    };
    std::ranges::for_each(backend.gemm_.prepared_, fill_buffer);
    fill_buffer(backend.gemm_.gate_);
    fill_buffer(backend.gemm_.kernel_scratch_);
    fill(stream, backend.attention_.scratch_.get(), value, backend.attention_.scratch_bytes());
    Sampler& sampler = backend.sampler_;
    const std::size_t request_bytes = sampler.limits_.request_bytes(), result_bytes = sampler.limits_.result_bytes();
    fill(stream, sampler.device_requests_.get(), value, request_bytes);
    fill(stream, sampler.device_results_.get(), value, result_bytes);
    fill(stream, sampler.adjusted_.get(), value, sampler.scratch_bytes() - request_bytes - result_bytes);
    fill_words(sampler.plan_.counts_, value);
    fill_words(sampler.plan_.matches_, value);
  }

 private:
  static void fill_words(std::vector<std::int32_t>& words, std::uint8_t value) {
    std::ranges::fill(std::as_writable_bytes(std::span(words)), std::byte{value});
  }
};

namespace {

CudaBackend& device_of(Backend& backend) {
  return dynamic_cast<CudaBackend&>(backend);
}

}  // namespace

bool is_of_this_device(const Backend& backend) noexcept {
  return dynamic_cast<const CudaBackend*>(&backend) != nullptr;
}

Stream& stream_of(Backend& backend) {
  return TestAccess::stream(device_of(backend));
}

void fill_scratch(Backend& backend, std::uint8_t value) {
  TestAccess::fill_scratch(device_of(backend), value);
  TestAccess::finish(device_of(backend));
}

void write_device(Backend& backend, void* to, const void* from, std::size_t n_bytes) {
  copy_to_device(stream_of(backend), to, from, n_bytes);
  TestAccess::finish(device_of(backend));
}

void read_device(Backend& backend, void* to, const void* from, std::size_t n_bytes) {
  copy_to_host(stream_of(backend), to, from, n_bytes);
  TestAccess::finish(device_of(backend));
}

std::span<std::byte> memory_of(const KvPool& pool) noexcept {
  const auto* const found = dynamic_cast<const CudaKvPool*>(&pool);
  if (found == nullptr) return {};
  return {found->layer(0), found->n_bytes()};
}

}  // namespace imp::cuda
