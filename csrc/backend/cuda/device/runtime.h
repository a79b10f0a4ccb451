// The functions of the device's runtime that the backend uses.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "backend/cuda/device/status.h"
#include "backend/cuda/device/stream.h"
#include "backend/gemm.h"

namespace imp::cuda {

struct DeviceFacts {
  std::string name;
  DeviceCaps caps;
  std::size_t total_bytes = 0;
  int driver_version = 0;  // 13000 for 13.0
  int runtime_version = 0;
  std::string_view images;  // the images of this build, in the notation of images.h
};

// Whether device 0 can be used. If so, fills in `facts`.
Status find_device(DeviceFacts& facts);
Status make_stream(Stream& stream);
void free_stream(Stream& stream) noexcept;

Status free_bytes(std::size_t& bytes);
Status allocate(std::size_t n_bytes, std::byte** memory);
void release(std::byte* memory) noexcept;
// Pinned host memory.
Status allocate_host(std::size_t n_bytes, std::byte** memory);
void release_host(std::byte* memory) noexcept;

// In stream order. copy_to_device reads `from` before the next synchronize() returns.
void copy_to_device(Stream& stream, void* to, const void* from, std::size_t n_bytes);
void copy_to_host(Stream& stream, void* to, const void* from, std::size_t n_bytes);
void copy_on_device(Stream& stream, void* to, const void* from, std::size_t n_bytes);
void fill(Stream& stream, void* to, int byte, std::size_t n_bytes);
void synchronize(Stream& stream);

// An event of a stream.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream);
  // Waits until the device has done the work before the last recorded event, if there is one.
  void wait(Stream& stream) const;
  // Both events must be recorded, and the stream synchronized since.
  double seconds_since(const Event& earlier) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A graph captured from a stream, for replay.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Between begin() and end() nothing runs. end() returns whether the capture made a graph of all work, and if not,
  // why.
  void begin(Stream& stream);
  Status end(Stream& stream);
  void replay(Stream& stream);

  struct State;
  State& state() noexcept { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace imp::cuda
