// The arguments of a GPU matrix kernel: plain data, like GemmArgs for the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace imp {

enum class DType : std::uint8_t;

// One weight, or a stack of experts' weights, and the destination of its product.
struct GemmLaunchTerm {
  const std::byte* weight = nullptr;  // in the kernel's layout
  const std::byte* const* experts =
      nullptr;                    // replaces `weight`: [n_experts] on the device; null entries belong to another kernel
  const float* bias = nullptr;    // [n], or none
  float* out = nullptr;           // [m, n]
  std::ptrdiff_t out_stride = 0;  // floats from one row to the next
  std::int64_t n = 0;
};

// What combines the products of a launch before they are written.
enum class GemmFusion : std::uint8_t {
  none,
  silu,       // two terms, gate and up, with equal n: the first one's out = silu(gate) · up
  gelu_tanh,  // the same with gelu_tanh
};

// All pointers except `stream` and the spans of this object are device addresses. The terms share k, the type of their
// weights and their input.
struct GemmLaunch {
  static constexpr int kMaxTerms = 4;

  void* stream = nullptr;  // the backend's own
  std::span<const GemmLaunchTerm> terms;
  DType weight_type = {};
  GemmFusion fusion = GemmFusion::none;
  const std::byte* x = nullptr;  // rows in the kernel's activation format
  std::ptrdiff_t x_stride = 0;   // bytes from one row to the next
  int m = 0;                     // rows of out; with experts, at most the kernel's max_m per expert
  std::int64_t k = 0;
  // With experts: expert e has the rows [begins[e], begins[e + 1]) of out. Row p of out comes from row sources[p] of x,
  // or from row p if `sources` is null.
  int n_experts = 0;
  const std::int32_t* begins = nullptr;
  const std::int32_t* sources = nullptr;
  std::byte* scratch = nullptr;  // the sum of scratch_bytes(problem, m) over the terms
};

}  // namespace imp
