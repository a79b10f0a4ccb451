// The runtime of the emulated device, in the process's memory. It runs work only when a caller waits for it.
#include "backend/cuda/device/runtime.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

#include "backend/cuda/device/images.h"
#include "base/ceil_div.h"
#include "native/emulator/faults.h"
#include "native/emulator/graph_state.h"
#include "native/gpu/thread_order.h"

namespace imp::cuda {
namespace {

// The process has one device, with its faults.
std::mutex device_lock;
emu::Faults faults;
std::atomic<std::size_t> n_bytes_in_use = 0;
struct PieceCounts {
  std::atomic<std::uint64_t> asked = 0;
  std::atomic<std::uint64_t> held = 0;
} piece_counts;

constexpr std::size_t kHeader = 256;  // before each allocation; holds its size

constexpr Status kNoMemory = {StatusKind::no_memory, 2, "cudaErrorMemoryAllocation"};
constexpr Status kLost = {StatusKind::fault, 719, "cudaErrorLaunchFailure"};

Status next_launch() {
  const std::lock_guard lock(device_lock);
  if (faults.launches_before_fault < 0) return {};
  if (faults.launches_before_fault == 0) return kLost;
  --faults.launches_before_fault;
  return {};
}

// Allocations of both kinds of memory.
Status next_allocation() {
  const std::lock_guard lock(device_lock);
  ++piece_counts.asked;
  if (faults.failing_allocation < 0) return {};
  return faults.failing_allocation-- == 0 ? kNoMemory : Status{};
}

// The work that was submitted to a stream and has not run.
struct Queue {
  struct Item {
    std::function<void()> work;
    bool is_launch = true;  // launches count for launches_before_fault
  };
  std::deque<Item> items;
  std::uint64_t n_submitted = 0;
  std::uint64_t n_done = 0;
  unsigned thread_order = 0;
  const PieceCounts* pieces = &piece_counts;  // the counters of the library that created the stream

  void push(Item item) {
    items.push_back(std::move(item));
    ++n_submitted;
  }
};

Queue& queue_of(const Stream& stream) {
  return *static_cast<Queue*>(stream.handle);
}

// Runs the work up to the n_done-th item. After a failure it runs nothing.
void work_up_to(Stream& stream, std::uint64_t n_done) {
  Queue& queue = queue_of(stream);
  for (; queue.n_done < n_done; ++queue.n_done) {
    const Queue::Item& next = queue.items.front();
    if (stream.is_ok() && next.is_launch) stream.keep(next_launch());
    if (stream.is_ok()) next.work();
    queue.items.pop_front();
  }
}

void copy(Stream& stream, void* to, const void* from, std::size_t n_bytes) {
  if (n_bytes == 0) return;
  emu::submit(stream, [=] { std::memcpy(to, from, n_bytes); });
}

}  // namespace

namespace emu {

void submit(Stream& stream, std::function<void()> work) {
  if (!stream.is_ok()) return;
  if (stream.captured != nullptr) return stream.captured->state().work.push_back(std::move(work));
  queue_of(stream).push({std::move(work)});
}

unsigned thread_order(const Stream& stream) {
  return queue_of(stream).thread_order;
}

Pieces pieces(const Stream& stream) noexcept {
  const PieceCounts& counts = *queue_of(stream).pieces;
  return {.asked = counts.asked, .held = counts.held};
}

}  // namespace emu

void set_thread_order(Stream& stream, unsigned seed) {
  queue_of(stream).thread_order = seed;
}

Status find_device(DeviceFacts& facts) {
  const std::lock_guard lock(device_lock);
  faults = emu::faults_of_environment();
  facts.name = "emulated GPU";
  // No instruction that only some devices have; as much shared memory as an H200.
  facts.caps = {.device = "cuda",
                .compute_capability = faults.compute_capability,
                .n_processors = 4,
                .shared_bytes = 227 << 10,
                .l2_bytes = 1 << 20,
                .wgmma = faults.wgmma};
  facts.images = faults.only_90a ? "90a-real" : images_of_build();
  facts.total_bytes = faults.total_bytes;
  facts.driver_version = faults.driver_version;
  facts.runtime_version = 13000;
  return faults.device;
}

Status make_stream(Stream& stream) {
  stream.handle = new Queue;
  return {};
}

void free_stream(Stream& stream) noexcept {
  delete static_cast<Queue*>(stream.handle);
  stream.handle = nullptr;
}

Status free_bytes(std::size_t& bytes) {
  const std::lock_guard lock(device_lock);
  bytes = faults.total_bytes - std::min(faults.total_bytes, n_bytes_in_use.load());
  return {};
}

Status allocate(std::size_t n_bytes, std::byte** memory) {
  if (const Status status = next_allocation(); !status.is_ok()) return status;
  std::size_t left = 0;
  free_bytes(left);
  if (n_bytes > left) return kNoMemory;
  auto* const piece = static_cast<std::byte*>(std::aligned_alloc(kHeader, round_up(kHeader + n_bytes, kHeader)));
  if (piece == nullptr) return kNoMemory;
  std::memcpy(piece, &n_bytes, sizeof n_bytes);
  std::memset(piece + kHeader, 0xA5, n_bytes);  // device memory is not zeroed
  n_bytes_in_use += n_bytes;
  ++piece_counts.held;
  *memory = piece + kHeader;
  return {};
}

void release(std::byte* memory) noexcept {
  if (memory == nullptr) return;
  std::size_t n_bytes = 0;
  std::memcpy(&n_bytes, memory - kHeader, sizeof n_bytes);
  n_bytes_in_use -= n_bytes;
  --piece_counts.held;
  std::free(memory - kHeader);
}

Status allocate_host(std::size_t n_bytes, std::byte** memory) {
  if (const Status status = next_allocation(); !status.is_ok()) return status;
  *memory = static_cast<std::byte*>(std::aligned_alloc(kHeader, round_up(n_bytes, kHeader)));
  if (*memory == nullptr) return kNoMemory;
  ++piece_counts.held;
  return {};
}

void release_host(std::byte* memory) noexcept {
  if (memory == nullptr) return;
  --piece_counts.held;
  std::free(memory);
}

void copy_to_device(Stream& stream, void* to, const void* from, std::size_t n_bytes) {
  copy(stream, to, from, n_bytes);
}

void copy_to_host(Stream& stream, void* to, const void* from, std::size_t n_bytes) {
  copy(stream, to, from, n_bytes);
}

void copy_on_device(Stream& stream, void* to, const void* from, std::size_t n_bytes) {
  copy(stream, to, from, n_bytes);
}

void fill(Stream& stream, void* to, int byte, std::size_t n_bytes) {
  if (n_bytes == 0) return;
  emu::submit(stream, [=] { std::memset(to, byte, n_bytes); });
}

void synchronize(Stream& stream) {
  work_up_to(stream, queue_of(stream).n_submitted);
}

struct Event::State {
  std::uint64_t n_done = 0;  // position in the queue when the event was recorded
  std::chrono::steady_clock::time_point time;
};

Event::Event() : state_(std::make_unique<State>()) {}
Event::~Event() = default;

void Event::record(Stream& stream) {
  Queue& queue = queue_of(stream);
  queue.push({[this] { state_->time = std::chrono::steady_clock::now(); }, false});
  state_->n_done = queue.n_submitted;
}

void Event::wait(Stream& stream) const {
  work_up_to(stream, state_->n_done);
}

double Event::seconds_since(const Event& earlier) const {
  return std::chrono::duration<double>(state_->time - earlier.state_->time).count();
}

Graph::Graph() : state_(std::make_unique<State>()) {}
Graph::~Graph() = default;

void Graph::begin(Stream& stream) {
  state_->work.clear();
  stream.captured = this;
}

Status Graph::end(Stream& stream) {
  stream.captured = nullptr;
  const std::lock_guard lock(device_lock);
  if (faults.captures_fail) return {StatusKind::fault, 901, "cudaErrorStreamCaptureInvalidated"};
  return stream.first_failure();
}

void Graph::replay(Stream& stream) {
  for (const std::function<void()>& work : state_->work) emu::submit(stream, work);
}

}  // namespace imp::cuda
