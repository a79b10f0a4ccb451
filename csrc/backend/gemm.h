// What a matrix kernel is: the problem it is asked, what the device can do, and its row in a kernel list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "backend/gemm_args.h"
#include "base/cpu_features.h"
#include "tensor/dtype.h"

namespace imp {

// out[m, n] = activations[m, k] · weight[n, k]^T for a weight known at load; m varies from call to call.
struct GemmProblem {
  DType weight = DType::F32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool is_of_experts = false;  // one of several, whose numbers of rows are known where they are multiplied
};

// A library that kernels call and that may not be here.
class KernelLibrary {
 public:
  virtual ~KernelLibrary() = default;
  // Why it cannot be used, for as long as this lives; nullptr where it can. The first question opens it: asked by one
  // thread at a time.
  virtual const char* refusal() = 0;
};

// What the device can do, as data but for the library: selection for a device that is not here is tested by giving its
// table.
struct DeviceCaps {
  std::string_view device = "cpu";  // "cpu" or "cuda"
  CpuFeatures cpu = {};
  // Of GPUs.
  int compute_capability = 0;    // 90 for 9.0
  int n_processors = 0;          // streaming multiprocessors
  std::size_t shared_bytes = 0;  // of shared memory that a block may ask for
  std::size_t l2_bytes = 0;
  bool wgmma = false;                 // products of warpgroups, and copies of tensors into shared memory
  KernelLibrary* cublaslt = nullptr;  // the backend's; null: nobody looks for it
};

// How the bytes of a weight lie in memory. `file` is the file's own: rows of blocks, one after the other.
// `panel16` interleaves 16 rows so that one vector load holds the same element (or group of elements) of each.
// `tile16` is made of tiles of 16 rows by 256 elements, each contiguous, in the order in which a GPU's matrix
// instructions take them: tiles along k, then along the rows; missing rows and elements are zero.
enum class WeightLayout : std::uint8_t { file, panel16, tile16 };
inline constexpr std::int64_t kPanelRows = 16;
inline constexpr std::int64_t kTileDepth = 256;

// What a kernel reads activations as: float32 rows, rows rounded to bfloat16 with an even number of elements (the last
// may be a zero beyond k), or rows of 32-element int8 blocks with a scale and sums. Those of tile16 are padded with
// zeros to whole tiles: q8_rows has a row's int8 first and its scales and sums behind them; f16_rows has float16 after
// a power of two for each row; f16_even_odd is that with the even elements of each 16 before the odd ones.
enum class ActivationFormat : std::uint8_t { f32, bf16, q8_block32, q8_rows, f16_rows, f16_even_odd, bf16_rows };

// The order of a kernel's floating-point sums. Kernels of one id give equal bits for equal inputs.
enum class ReductionId : std::uint8_t {
  f32_sequential,  // weights as their type decodes to float32; per output one fma per element, k ascending, from +0
  // Activations rounded to bfloat16; per pair of elements one fma of the odd product, then one of the even, from +0.
  bf16_pairs,
  // Exact integer dot of each 32-block; then one fma of (dot, scale·scale) per block, k ascending, each followed by one
  // of (min, activations' sum) where the type has minima. Of types with scales for each 16 elements the fma is of (sum,
  // activations' scale), the sum being that of both halves' dots times their scales, and of their minima where there
  // are any.
  q8_block32,
  // Of tile16 from q8_rows: the exact integer of each 32-block, scaled in four chains by block number modulo 4, summed
  // as (0 + 2) + (1 + 3); slices of k of a size that depends on k alone, in ascending order.
  q8_slices,
  // Of tile16 from float16 or bfloat16: what the matrix instructions sum of 16 elements at a time, k ascending, in
  // slices as above. Of F8_E4M3 so of 64 elements, and one fma of (that sum, scale) for each.
  float_slices,
  // As float_slices, without slices; scales are of the weights, not of their sums.
  float_steps,
  // Of tile16 from float16 or bfloat16: a library's, which differs with the number of rows. The same from run to run.
  library,
};

// max_m of a kernel that takes any number of rows.
inline constexpr int kAnyRows = std::numeric_limits<int>::max();

struct GemmLaunch;

struct GemmKernel {
  std::string_view
      name;         // its function is run_NAME on a CPU, launch_NAME on a GPU; = test id = log word = imp.conf word
  DType weight;     // ignored where any_weight is set
  bool any_weight;  // the kernel goes through the type's dequantizer
  WeightLayout layout;
  ActivationFormat activations;
  int max_m;  // rows it can take
  ReductionId reduction;
  bool validated;  // it has run on the hardware that it is for, as tests run every kernel of a CPU
  // nullptr if the kernel fits a weight of its type on this device, else the reason in words. It does not check the
  // CPU's features: `needs` lists them.
  const char* (*refuses)(const GemmProblem&, const DeviceCaps&);
  // Does not shrink as m grows.
  std::size_t (*scratch_bytes)(const GemmProblem&, int m);
  void (*run)(const GemmArgs&);                 // of the CPU's kernels: computes
  void (*launch)(const GemmLaunch&) = nullptr;  // of a GPU's: puts the work on the device's stream
  int best_m = kAnyRows;                        // rows up to which it is meant to run where a plan may mix reductions
  bool fuses = false;                           // its launches may have a GemmFusion other than none
  int least_m = 1;                              // rows from which it is meant to run, where a plan may mix reductions
  // Where there is one: called before the first launch for such a weight, with the launch's stream. Throws ModelError.
  void (*prepare)(const GemmProblem&, void* stream) = nullptr;
  CpuFeatures needs = {};  // features that a CPU kernel requires
};

// The reason why the kernel cannot multiply a weight of its type on this device; empty if it can.
std::string refusal(const GemmKernel& kernel, const GemmProblem& problem, const DeviceCaps& caps);

// Bytes of a weight in a layout: panels are padded to 16 rows of the file's size, tiles also to 256 elements. k fills
// whole blocks.
std::size_t packed_bytes(const GemmProblem& problem, WeightLayout layout) noexcept;

// Their words, as logs and explanations use them.
std::string_view name_of(WeightLayout layout) noexcept;
std::string_view name_of(ActivationFormat format) noexcept;
std::string_view name_of(ReductionId reduction) noexcept;

}  // namespace imp
