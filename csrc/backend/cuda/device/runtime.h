// What the backend asks of the device's runtime.
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
  std::string_view images;  // what this build has code for, as images.h reads it
};

// Whether device 0 can be used; `facts` is filled in where it can.
Status find_device(DeviceFacts& facts);
Status make_stream(Stream& stream);
void free_stream(Stream& stream) noexcept;

Status free_bytes(std::size_t& bytes);
Status allocate(std::size_t n_bytes, std::byte** memory);
void release(std::byte* memory) noexcept;
// Host memory that the device reads and writes by itself.
Status allocate_host(std::size_t n_bytes, std::byte** memory);
void release_host(std::byte* memory) noexcept;

// In the stream's order. `from` of copy_to_device is read before the next synchronize() returns.
void copy_to_device(Stream& stream, void* to, const void* from, std::size_t n_bytes);
void copy_to_host(Stream& stream, void* to, const void* from, std::size_t n_bytes);
void copy_on_device(Stream& stream, void* to, const void* from, std::size_t n_bytes);
void fill(Stream& stream, void* to, int byte, std::size_t n_bytes);
void synchronize(Stream& stream);

// A moment of a stream, to wait for, or to measure from or to.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream);
  // Until the device has done what was asked of it before the moment recorded last, if one was.
  void wait(Stream& stream) const;
  // Both were recorded, and the stream has been synchronized since.
  double seconds_since(const Event& earlier) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What was captured from a stream, to be done again.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Between the two nothing is begun. end() says whether a graph of all that was asked for came of it, and if not why.
  void begin(Stream& stream);
  Status end(Stream& stream);
  void replay(Stream& stream);

  struct State;
  State& state() noexcept { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace imp::cuda
