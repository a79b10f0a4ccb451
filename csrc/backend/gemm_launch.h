// What a matrix kernel of a GPU is launched with: plain data, as GemmArgs is for the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace imp {

enum class DType : std::uint8_t;

// One weight, or with experts one stack of them, and where its product goes.
struct GemmLaunchTerm {
  const std::byte* weight = nullptr;          // in the kernel's layout
  const std::byte* const* experts = nullptr;  // in its place: [n_experts] on the device; null where not this kernel's
  const float* bias = nullptr;                // [n], or none
  float* out = nullptr;                       // [m, n]
  std::ptrdiff_t out_stride = 0;              // floats from one row to the next
  std::int64_t n = 0;
};

// What the products of a launch are joined by before they are written.
enum class GemmFusion : std::uint8_t {
  none,
  silu,       // two terms, gate and up, of one n: the first one's out = silu(gate) · up
  gelu_tanh,  // likewise
};

// All pointers but the stream and this object's own spans are addresses on the device. The terms share k, the type of
// their weights and their input.
struct GemmLaunch {
  static constexpr int kMaxTerms = 4;

  void* stream = nullptr;  // the backend's own
  std::span<const GemmLaunchTerm> terms;
  DType weight_type = {};
  GemmFusion fusion = GemmFusion::none;
  const std::byte* x = nullptr;  // rows in the kernel's activation format
  std::ptrdiff_t x_stride = 0;   // bytes from one row to the next
  int m = 0;                     // rows of out; of those of one expert the kernel's max_m at most
  std::int64_t k = 0;
  // With experts: expert e has the rows of out [begins[e], begins[e + 1]); row p of out is of row sources[p] of x, or
  // where that is null of row p.
  int n_experts = 0;
  const std::int32_t* begins = nullptr;
  const std::int32_t* sources = nullptr;
  std::byte* scratch = nullptr;  // what scratch_bytes(problem, m) says of the terms, added up
};

}  // namespace imp
