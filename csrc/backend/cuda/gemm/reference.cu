// The reference kernel: products with weights of any type, decoded from the file's format.
#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/gemm/encoded_rows.cuh"
#include "backend/cuda/gemm/kernels.h"
#include "backend/gemm_launch.h"
#include "base/ceil_div.h"
#include "tensor/quant/with_block.h"

namespace imp::cuda {

// A block computes some columns of some rows of out. One thread computes each over all of k.
struct Reference {
  static constexpr int kColumns = 32;  // of out: rows of the weight
  static constexpr int kRows = 8;      // of out
  static constexpr int kThreads = kColumns * kRows;
  static constexpr int kDepth = 256;          // elements at a time: whole blocks of every type
  static constexpr int kStride = kDepth + 1;  // floats of a decoded row; the extra one avoids bank conflicts
};

// GemmLaunch as blocks read it.
struct ReferenceWork {
  GemmLaunchTerm terms[GemmLaunch::kMaxTerms];
  int n_terms = 0;
  const std::byte* x = nullptr;
  std::ptrdiff_t x_stride = 0;
  int m = 0;
  int k = 0;
  std::int64_t row_bytes = 0;  // of the weight
  int n_experts = 0;
  const std::int32_t* begins = nullptr;
  const std::int32_t* sources = nullptr;
};

// Row tiles of out for m rows, for any distribution of rows over experts.
constexpr int reference_row_tiles(int m, int n_experts) {
  const int whole = ceil_div(m, Reference::kRows);
  if (n_experts == 0) return whole;
  return whole + n_experts < m ? whole + n_experts : m;
}
constexpr int reference_column_tiles(std::int64_t n) {
  return static_cast<int>(ceil_div(n, Reference::kColumns));
}

// Rows [begin, end) of out, all of one expert.
struct ReferenceRows {
  int expert = 0, begin = 0, end = 0;
};
// Empty if there are fewer tiles.
static __device__ __forceinline__ ReferenceRows reference_rows(const ReferenceWork& work, int tile) {
  if (work.n_experts == 0) {
    const int begin = tile * Reference::kRows, end = begin + Reference::kRows;
    return {0, begin, end < work.m ? end : work.m};
  }
  for (int expert = 0; expert < work.n_experts; ++expert) {
    const int first = work.begins[expert], last = work.begins[expert + 1];
    const int n_tiles = ceil_div(last - first, Reference::kRows);
    if (tile < n_tiles) {
      const int begin = first + tile * Reference::kRows, end = begin + Reference::kRows;
      return {expert, begin, end < last ? end : last};
    }
    tile -= n_tiles;
  }
  return {};
}

// Decodes elements [begin, begin + n) of the weight's rows from first_column on, except rows beyond the weight.
template <class Block>
__device__ __forceinline__ void decode_columns(const ReferenceWork& work, const std::byte* weight, std::int64_t n,
                                               std::int64_t first_column, int begin, int n_elements, float* out) {
  constexpr int kElements = kGroupElements<Block>;
  const int n_groups = n_elements / kElements;  // of a row
  for (int i = static_cast<int>(threadIdx.x); i < Reference::kColumns * n_groups; i += Reference::kThreads) {
    const int column = i / n_groups, group = i % n_groups;
    if (first_column + column >= n) return;
    decode_group<Block>(weight + (first_column + column) * work.row_bytes, begin / kElements + group,
                        out + column * Reference::kStride + group * kElements);
  }
}

template <class Block>
__global__ void __launch_bounds__(Reference::kThreads) reference_kernel(const __grid_constant__ ReferenceWork work) {
  static_assert(Reference::kDepth % Block::kElements == 0);
  __shared__ float weights[Reference::kColumns * Reference::kStride];
  __shared__ float inputs[Reference::kRows * Reference::kDepth];
  int term_number = 0, column_tile = static_cast<int>(blockIdx.x);
  while (column_tile >= reference_column_tiles(work.terms[term_number].n)) {
    column_tile -= reference_column_tiles(work.terms[term_number++].n);
  }
  const GemmLaunchTerm& term = work.terms[term_number];
  const ReferenceRows rows = reference_rows(work, static_cast<int>(blockIdx.y));
  const std::byte* const weight = term.experts != nullptr ? term.experts[rows.expert] : term.weight;
  if (rows.begin == rows.end || weight == nullptr) return;

  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first_column = std::int64_t{column_tile} * Reference::kColumns;
  const int column = thread % Reference::kColumns, row = thread / Reference::kColumns;
  float sum = 0;
  for (int begin = 0; begin < work.k; begin += Reference::kDepth) {
    const int n_elements = work.k - begin < Reference::kDepth ? work.k - begin : Reference::kDepth;
    decode_columns<Block>(work, weight, term.n, first_column, begin, n_elements, weights);
    for (int i = thread; i < (rows.end - rows.begin) * n_elements; i += Reference::kThreads) {
      const int p = rows.begin + i / n_elements, source = work.sources != nullptr ? work.sources[p] : p;
      const auto* const x = reinterpret_cast<const float*>(work.x + source * work.x_stride);
      inputs[i / n_elements * Reference::kDepth + i % n_elements] = x[begin + i % n_elements];
    }
    __syncthreads();
    for (int i = 0; i < n_elements; ++i) {
      sum = fmaf(inputs[row * Reference::kDepth + i], weights[column * Reference::kStride + i], sum);
    }
    __syncthreads();
  }
  const std::int64_t n = first_column + column;
  if (rows.begin + row >= rows.end || n >= term.n) return;
  if (term.bias != nullptr) sum += term.bias[n];
  term.out[(rows.begin + row) * term.out_stride + n] = sum;
}

void launch_reference(const GemmLaunch& launch) {
  ReferenceWork work;
  int n_column_tiles = 0;
  for (const GemmLaunchTerm& term : launch.terms) {
    work.terms[work.n_terms++] = term;
    n_column_tiles += reference_column_tiles(term.n);
  }
  work.x = launch.x;
  work.x_stride = launch.x_stride;
  work.m = launch.m;
  work.k = static_cast<int>(launch.k);
  work.row_bytes = *row_bytes(launch.weight_type, launch.k);
  work.n_experts = launch.n_experts;
  work.begins = launch.begins;
  work.sources = launch.sources;
  const LaunchShape shape = {.grid = {static_cast<unsigned>(n_column_tiles),
                                      static_cast<unsigned>(reference_row_tiles(launch.m, launch.n_experts))},
                             .block = Reference::kThreads};
  quant::with_block(launch.weight_type,
                    [&]<class Block>() { cuda::launch(stream_of(launch), reference_kernel<Block>, shape, work); });
}

}  // namespace imp::cuda
