// The device runtime on CUDA.
#include "backend/cuda/device/runtime.h"

#include <cuda_runtime.h>

#include "backend/cuda/device/cuda_status.cuh"
#include "backend/cuda/device/images.h"

namespace imp::cuda {
namespace {

cudaStream_t handle_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

void copy(Stream& stream, void* to, const void* from, std::size_t n_bytes, cudaMemcpyKind kind) {
  if (!stream.is_ok() || n_bytes == 0) return;
  stream.keep(to_status(cudaMemcpyAsync(to, from, n_bytes, kind, handle_of(stream))));
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, 0) == cudaSuccess ? value : 0;
}

}  // namespace

Status find_device(DeviceFacts& facts) {
  cudaDriverGetVersion(&facts.driver_version);
  cudaRuntimeGetVersion(&facts.runtime_version);
  int count = 0;  // unchanged if the call fails
  if (const Status status = to_status(cudaGetDeviceCount(&count)); !status.is_ok()) return status;
  if (count == 0) return {StatusKind::absent, cudaErrorNoDevice, cudaGetErrorName(cudaErrorNoDevice)};
  cudaDeviceProp properties{};
  if (const Status status = to_status(cudaGetDeviceProperties(&properties, 0)); !status.is_ok()) return status;
  facts.name = properties.name;
  facts.total_bytes = properties.totalGlobalMem;
  facts.caps = {.device = "cuda",
                .compute_capability = properties.major * 10 + properties.minor,
                .n_processors = properties.multiProcessorCount,
                .shared_bytes = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
                .l2_bytes = static_cast<std::size_t>(properties.l2CacheSize)};
  facts.images = images_of_build();
  facts.caps.wgmma = have_wgmma(facts.images, facts.caps.compute_capability);
  return {};
}

Status make_stream(Stream& stream) {
  cudaStream_t made = nullptr;
  const Status status = to_status(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  stream.handle = made;
  return status;
}

void free_stream(Stream& stream) noexcept {
  if (stream.handle != nullptr) cudaStreamDestroy(handle_of(stream));
  stream.handle = nullptr;
}

Status free_bytes(std::size_t& bytes) {
  std::size_t total = 0;
  return to_status(cudaMemGetInfo(&bytes, &total));
}

Status allocate(std::size_t n_bytes, std::byte** memory) {
  return to_status(cudaMalloc(reinterpret_cast<void**>(memory), n_bytes));
}

void release(std::byte* memory) noexcept {
  cudaFree(memory);
}

Status allocate_host(std::size_t n_bytes, std::byte** memory) {
  return to_status(cudaMallocHost(reinterpret_cast<void**>(memory), n_bytes));
}

void release_host(std::byte* memory) noexcept {
  cudaFreeHost(memory);
}

void copy_to_device(Stream& stream, void* to, const void* from, std::size_t n_bytes) {
  copy(stream, to, from, n_bytes, cudaMemcpyHostToDevice);
}

void copy_to_host(Stream& stream, void* to, const void* from, std::size_t n_bytes) {
  copy(stream, to, from, n_bytes, cudaMemcpyDeviceToHost);
}

void copy_on_device(Stream& stream, void* to, const void* from, std::size_t n_bytes) {
  copy(stream, to, from, n_bytes, cudaMemcpyDeviceToDevice);
}

void fill(Stream& stream, void* to, int byte, std::size_t n_bytes) {
  if (!stream.is_ok() || n_bytes == 0) return;
  stream.keep(to_status(cudaMemsetAsync(to, byte, n_bytes, handle_of(stream))));
}

void synchronize(Stream& stream) {
  // Waits even after an error: earlier work still accesses memory.
  stream.keep(to_status(cudaStreamSynchronize(handle_of(stream))));
}

struct Event::State {
  cudaEvent_t event = nullptr;
  Status made;
};

Event::Event() : state_(std::make_unique<State>()) {
  state_->made = to_status(cudaEventCreate(&state_->event));
}

Event::~Event() {
  if (state_->event != nullptr) cudaEventDestroy(state_->event);
}

void Event::record(Stream& stream) {
  stream.keep(state_->made);
  if (stream.is_ok()) stream.keep(to_status(cudaEventRecord(state_->event, handle_of(stream))));
}

void Event::wait(Stream& stream) const {
  // An event that was never recorded counts as finished.
  if (state_->made.is_ok()) stream.keep(to_status(cudaEventSynchronize(state_->event)));
}

double Event::seconds_since(const Event& earlier) const {
  constexpr double kMilli = 1e-3;
  float milliseconds = 0;  // unchanged if the call fails
  cudaEventElapsedTime(&milliseconds, earlier.state_->event, state_->event);
  return milliseconds * kMilli;
}

struct Graph::State {
  cudaGraphExec_t executable = nullptr;
};

Graph::Graph() : state_(std::make_unique<State>()) {}

Graph::~Graph() {
  if (state_->executable != nullptr) cudaGraphExecDestroy(state_->executable);
}

void Graph::begin(Stream& stream) {
  if (!stream.is_ok()) return;
  stream.keep(to_status(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeThreadLocal)));
  if (stream.is_ok()) stream.captured = this;
}

Status Graph::end(Stream& stream) {
  if (stream.captured != this) return stream.first_failure();  // the capture did not begin
  cudaGraph_t graph = nullptr;
  Status status = to_status(cudaStreamEndCapture(handle_of(stream), &graph));
  stream.captured = nullptr;
  if (status.is_ok()) status = stream.first_failure();  // of a call that failed without breaking the capture
  if (status.is_ok()) status = to_status(cudaGraphInstantiate(&state_->executable, graph, 0));
  if (graph != nullptr) cudaGraphDestroy(graph);
  return status;
}

void Graph::replay(Stream& stream) {
  if (!stream.is_ok()) return;
  stream.keep(to_status(cudaGraphLaunch(state_->executable, handle_of(stream))));
}

}  // namespace imp::cuda
