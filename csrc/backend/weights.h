// Weights in device memory, and where their bytes come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "backend/gemm_registry.h"

namespace imp {

// Increase when the bytes of a layout change meaning: packed weights are cached on disk.
inline constexpr int kLayoutRevision = 1;

// A weight matrix in device memory with the kernels chosen for it. Only the backend that made it can use it.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual const GemmProblem& problem() const noexcept = 0;
  virtual const GemmPlan& plan() const noexcept = 0;
  virtual std::size_t n_bytes() const noexcept = 0;
  // The weight's bytes in the plan's layout if the process can read them, else empty.
  virtual std::span<const std::byte> packed() const noexcept = 0;
};

// A vector of float32 in device memory (norm weights, biases).
class Vector {
 public:
  virtual ~Vector() = default;
  virtual const float* data() const noexcept = 0;  // a device address
  virtual int size() const noexcept = 0;
};

// The source of a weight's bytes: whole rows in the file's format, [n, k], k contiguous.
struct WeightSource {
  std::string name;
  GemmProblem problem;
  std::function<void(std::int64_t first_row, std::int64_t n_rows, std::byte* out)> read;
  // If set, and the backend keeps_packed(), this replaces `read`. It returns the bytes that Linear::packed() had for
  // the same plan, from `offset` on. Ranges begin at multiples of kPackedRangeBytes and end there or at the weight's
  // end.
  std::function<void(std::uint64_t offset, std::span<std::byte> out)> read_packed = {};
};
inline constexpr std::int64_t kPackedRangeBytes = std::int64_t{1} << 18;

// A weight to load, and its plan.
struct LinearRequest {
  WeightSource source;
  GemmPlan plan;
};

// Called while weights are loaded, on the calling thread, with the bytes read since the last call. An exception stops
// the loading.
using BytesRead = std::function<void(std::uint64_t n_bytes)>;

}  // namespace imp
