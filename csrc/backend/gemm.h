// A matrix kernel: its problem, the device's capabilities, and its row in a kernel list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "backend/gemm_args.h"
#include "base/cpu_features.h"
#include "base/processor.h"
#include "tensor/dtype.h"

namespace imp {

// out[m, n] = activations[m, k] · weight[n, k]^T. The weight is known at load; m varies from call to call.
struct GemmProblem {
  DType weight = DType::F32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool is_of_experts = false;  // a weight of a mixture of experts, multiplied by grouped rows
};

// An optional library that kernels call.
class KernelLibrary {
 public:
  virtual ~KernelLibrary() = default;
  // Why the library cannot be used; nullptr if it can. The first call opens it. One thread at a time.
  virtual const char* refusal() = 0;
};

// The device's capabilities as plain data, apart from the library. Tests select kernels for an absent device with such
// a table.
struct DeviceCaps {
  std::string_view device = "cpu";  // "cpu" or "cuda"
  CpuFeatures cpu = {};
  Processor processor = {};
  // Of GPUs:
  int compute_capability = 0;    // 90 for 9.0
  int n_processors = 0;          // streaming multiprocessors
  std::size_t shared_bytes = 0;  // shared memory that one block may use
  std::size_t l2_bytes = 0;
  bool wgmma = false;                 // warpgroup matrix instructions (wgmma) and tensor copies (TMA)
  KernelLibrary* cublaslt = nullptr;  // owned by the backend; null: not used
};

// The layout of a weight in memory. `file`: rows of blocks as in the file. `panel16`: 16 rows interleaved, so that one
// vector load has the same element (or group of elements) of each; BLIS and VNNI kernels call this a packed panel.
// `tile16`: contiguous tiles of 16 rows by 256 elements in the order of a GPU's matrix instructions, along k first;
// missing rows and elements are zero.
enum class WeightLayout : std::uint8_t { file, panel16, tile16 };
inline constexpr std::int64_t kPanelRows = 16;
inline constexpr std::int64_t kTileDepth = 256;

// The form in which a kernel reads activations: float32 rows; rows rounded to bfloat16, padded with zero to an even
// length; or rows of 32-element int8 blocks with a scale and sums. Those for tile16 are zero-padded to whole tiles:
// q8_rows has a row's int8 first, then its scales and sums; f16_rows has float16 scaled by a power of two per row;
// f16_even_odd has the even elements of each 16 before the odd ones.
enum class ActivationFormat : std::uint8_t {
  f32,
  bf16,
  q8_block32,
  q8_rows,
  f16_rows,
  f16_even_odd,
  bf16_rows,
  n_formats  // not a format: the size of a table of them
};

template <class T>
struct ByFormat : std::array<T, static_cast<std::size_t>(ActivationFormat::n_formats)> {
  using Base = std::array<T, static_cast<std::size_t>(ActivationFormat::n_formats)>;
  using Base::operator[];
  constexpr T& operator[](ActivationFormat format) { return Base::operator[](static_cast<std::size_t>(format)); }
  constexpr const T& operator[](ActivationFormat format) const {
    return Base::operator[](static_cast<std::size_t>(format));
  }
};

// The order of a kernel's floating-point sums. Kernels with the same id give the same bits for the same inputs.
enum class ReductionId : std::uint8_t {
  f32_sequential,  // weights as their type decodes to float32; per output one fma per element, k ascending, from +0
  // Activations rounded to bfloat16. Per pair of elements one fma of the odd product, then one of the even, from +0.
  bf16_pairs,
  // Exact integer dot product of each 32-block. Then per block, k ascending, one fma of (dot, scale·scale), followed by
  // one of (min, activations' sum) if the type has minima. For types with a scale per 16 elements the fma is of (sum,
  // activations' scale), where the sum adds both halves' dots times their scales, and their minima if any.
  q8_block32,
  // tile16 from q8_rows: the exact integer of each 32-block is scaled into four chains by block number modulo 4, summed
  // as (0 + 2) + (1 + 3). Split-K with slices whose size depends only on k, in ascending order.
  q8_slices,
  // tile16 from float16 or bfloat16: the sums that matrix instructions make of 16 elements at a time, k ascending, in
  // slices as above. F8_E4M3: the same over 64 elements, and one fma of (that sum, scale) for each.
  float_slices,
  // Like float_slices without slices; scales multiply the weights, not the sums.
  float_steps,
  // tile16 from float16 or bfloat16: the order of a library. It depends on the number of rows, but not on the run.
  library,
};

// max_m of a kernel that takes any number of rows.
inline constexpr int kAnyRows = std::numeric_limits<int>::max();

struct GemmLaunch;

struct GemmKernel {
  std::string_view
      name;         // its function is run_NAME on a CPU, launch_NAME on a GPU; also its name in tests, logs, imp.conf
  DType weight;     // ignored if any_weight is set
  bool any_weight;  // the kernel goes through the type's dequantizer
  WeightLayout layout;
  ActivationFormat activations;
  int max_m;  // most rows per call
  ReductionId reduction;
  bool validated;  // it has run on its hardware
  // nullptr if the kernel fits a weight of its type on this device, else the reason in words. It does not check the
  // CPU's features: `needs` lists them.
  const char* (*refuses)(const GemmProblem&, const DeviceCaps&);
  // Does not shrink as m grows.
  std::size_t (*scratch_bytes)(const GemmProblem&, int m);
  void (*run)(const GemmArgs&);                 // CPU kernels: computes
  void (*launch)(const GemmLaunch&) = nullptr;  // GPU kernels: enqueues the work on the stream
  int max_preferred_m = kAnyRows;               // most rows for which it is preferred, if a plan may mix reductions
  bool fuses = false;                           // its launches may have a GemmFusion other than none
  int min_preferred_m = 1;                      // fewest rows for which it is preferred
  // Optional: called before the first launch for a weight, with the launch's stream. Throws ModelError.
  void (*prepare)(const GemmProblem&, void* stream) = nullptr;
  CpuFeatures needs = {};  // features that a CPU kernel requires
};

// The reason why the kernel cannot multiply a weight of its type on this device; empty if it can.
std::string refusal(const GemmKernel& kernel, const GemmProblem& problem, const DeviceCaps& caps);

// Bytes of a weight in a layout: panels are padded to 16 rows of the file's size, tiles also to 256 elements. k fills
// whole blocks.
std::size_t packed_bytes(const GemmProblem& problem, WeightLayout layout) noexcept;

// Their names in logs and explanations.
std::string_view name_of(WeightLayout layout) noexcept;
std::string_view name_of(ActivationFormat format) noexcept;
std::string_view name_of(ReductionId reduction) noexcept;

}  // namespace imp
