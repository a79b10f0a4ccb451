// Multiplies tile16 weights by many rows of float16 or bfloat16 with cuBLASLt: host code.
#include "backend/cuda/gemm/cublaslt/products.cuh"

#include "backend/cuda/gemm/cublaslt/cublaslt.h"
#include "backend/cuda/gemm/kernels.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

// The terms of one launch: a weight, or a gate and its product.
template <DType kType>
class ProductBatch {
 public:
  ProductBatch(const GemmLaunch& launch, std::span<const GemmLaunchTerm> terms)
      : launch_(launch),
        terms_(terms),
        partition_(partition_of(terms.front().n, launch.k, n_products())),
        places_(scratch_of(partition_, n_products(), launch.m)) {}

  void run() const {
    for (std::int64_t first = 0; first < partition_.n_rows; first += partition_.strip_rows) {
      const std::int64_t n_rows = std::min(partition_.strip_rows, partition_.n_rows - first);
      for (int i = 0; i < n_products(); ++i) decode(i, first, n_rows);
      for (int row = 0; row < launch_.m; row += partition_.part_rows) {
        const int m = std::min(partition_.part_rows, launch_.m - row);
        for (int i = 0; i < n_products(); ++i) multiply(i, n_rows, row, m);
        finish(first, n_rows, row, m);
      }
    }
  }

 private:
  static constexpr bool kIsBfloat16 = WeightStep<kType>::kIsBfloat16;

  int n_products() const { return static_cast<int>(terms_.size()); }
  std::byte* weights(int i) const {
    return launch_.scratch + places_.weights + static_cast<unsigned>(i) * places_.weight_bytes;
  }
  float* units(int i) const {
    return reinterpret_cast<float*>(launch_.scratch + places_.units + static_cast<unsigned>(i) * places_.unit_bytes);
  }
  float* sums(int i) const {
    return reinterpret_cast<float*>(launch_.scratch + places_.products +
                                    static_cast<unsigned>(i) * places_.product_bytes);
  }
  const std::byte* x(int row) const { return launch_.x + row * launch_.x_stride; }

  void decode(int i, std::int64_t first, std::int64_t n_rows) const {
    const auto n_tiles = static_cast<int>(partition_.k / kTileElements);
    const std::byte* const tiles =
        terms_[static_cast<std::size_t>(i)].weight + first / kTileRows * n_tiles * Tile<kType>::kBytes;
    constexpr unsigned kTiles = CublasLtKernel::kWarps;
    cuda::launch(stream_of(launch_), cublaslt_weights_kernel<kType>,
                 {.grid = {ceil_div(static_cast<unsigned>(n_tiles), kTiles), static_cast<unsigned>(n_rows / kTileRows)},
                  .block = CublasLtKernel::kThreads},
                 tiles, n_tiles, weights(i), units(i));
  }

  void multiply(int i, std::int64_t n_rows, int row, int m) const {
    Stream& stream = stream_of(launch_);
    const CublasLtProduct product = {.is_bfloat16 = kIsBfloat16,
                                     .n = n_rows,
                                     .k = partition_.k,
                                     .weights = weights(i),
                                     .x = x(row),
                                     .x_stride = launch_.x_stride,
                                     .m = m,
                                     .out = sums(i),
                                     .workspace = launch_.scratch};
    enqueue(stream, [library = stream.cublaslt, handle = stream.handle, product] {
      return library->multiply(product, handle);
    });
  }

  void finish(std::int64_t first, std::int64_t n_rows, int row, int m) const {
    const auto from_first = [&](GemmLaunchTerm term) {
      if (term.bias != nullptr) term.bias += first;
      if (term.out != nullptr) term.out += row * term.out_stride + first;
      return term;
    };
    FinishWork work;
    work.sums = sums(0);
    work.up = sums(n_products() - 1);
    work.units = units(0);
    work.up_units = units(n_products() - 1);
    work.stride = n_rows;
    work.term = from_first(terms_.front());
    work.up_term = from_first(terms_.back());
    work.n = static_cast<int>(std::min(n_rows, terms_.front().n - first));
    work.fusion = launch_.fusion;
    work.x = x(row);
    work.x_stride = launch_.x_stride;
    work.factor_offset = kIsBfloat16 ? 0 : static_cast<int>(partition_.k) * 2;
    constexpr unsigned kColumns = CublasLtKernel::kThreads;
    cuda::launch(stream_of(launch_), finish_products_kernel,
                 {.grid = {ceil_div(static_cast<unsigned>(work.n), kColumns), static_cast<unsigned>(m)},
                  .block = CublasLtKernel::kThreads},
                 work);
  }

  const GemmLaunch& launch_;
  std::span<const GemmLaunchTerm> terms_;
  CublasLtPartition partition_;
  CublasLtScratch places_;
};

// The terms use the scratch one after the other.
template <DType kType>
void launch_cublaslt(const GemmLaunch& launch) {
  IMP_CHECK(launch.n_experts == 0);
  const std::size_t at_once = launch.fusion == GemmFusion::none ? 1 : 2;
  for (std::size_t i = 0; i < launch.terms.size(); i += at_once) {
    ProductBatch<kType>(launch, launch.terms.subspan(i, at_once)).run();
  }
}

}  // namespace

std::size_t cublaslt_scratch_bytes(const GemmProblem& problem, int m) {
  std::size_t most = 0;
  for (const int n_products : {1, 2}) {
    most = std::max(most, scratch_of(partition_of(problem.n, problem.k, n_products), n_products, m).end);
  }
  return most;
}

void prepare_cublaslt(const GemmProblem& problem, void* stream) {
  static_cast<Stream*>(stream)->cublaslt->prepare(problem);
}

IMP_TILE_TYPES(IMP_DEFINE_LAUNCH, cublaslt)

}  // namespace imp::cuda
