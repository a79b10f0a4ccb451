// cuBLASLt for the kernels. All queries run at load; steps only multiply.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend/cuda/device/status.h"
#include "backend/cuda/gemm/cublaslt/api.h"
#include "backend/cuda/gemm/cublaslt/partition.h"
#include "backend/gemm.h"

namespace imp::cuda {

// A product of decoded weights [n, k] and rows of x [m, k], both of 16-bit elements: float32 [m, n].
struct CublasLtProduct {
  bool is_bfloat16 = false;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const std::byte* weights = nullptr;
  const std::byte* x = nullptr;
  std::ptrdiff_t x_stride = 0;  // bytes
  int m = 0;
  float* out = nullptr;
  std::byte* workspace = nullptr;
};

// Owned by a backend. The first query opens the library.
class CublasLt final : public KernelLibrary {
 public:
  // As for open_cublaslt(); empty: not used.
  explicit CublasLt(std::vector<std::string> paths);
  ~CublasLt() override;
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  const char* refusal() override;

  // Chooses the algorithms for a weight, alone and with its gate. Throws ModelError(MODEL_UNSUPPORTED) if none fits the
  // workspace and sums each output in a fixed order.
  void prepare(const GemmProblem& problem);

  // Enqueues the product with the algorithm chosen for n, k and about m rows. May be captured.
  Status multiply(const CublasLtProduct& product, void* stream) const;

 private:
  struct Shape;
  struct Algorithms;
  std::size_t index_of(bool is_bfloat16, std::int64_t n, std::int64_t k) const;  // index in shapes_; its size if absent
  Shape make_shape(bool is_bfloat16, std::int64_t n, std::int64_t k) const;
  void choose(Shape& shape, int bucket) const;
  Algorithms query(const Shape& shape, int m, std::uint32_t reductions) const;
  bool accepts(const Shape& shape, int m, const cublaslt::Candidate& candidate) const;
  std::string describe(cublaslt::Code code) const;

  std::vector<std::string> paths_;
  bool is_opened_ = false;
  std::string refusal_;
  cublaslt::Api api_ = {};
  cublaslt::HandleData* handle_ = nullptr;
  std::vector<Shape> shapes_;
};

}  // namespace imp::cuda
