// Opens cuBLASLt, chooses algorithms and multiplies.
//
// Its matrices are column-major: decoded weights are a [k, n] that is transposed, x is a [k, m], and the product is an
// [n, m].
#include "backend/cuda/gemm/cublaslt/cublaslt.h"

#include <algorithm>
#include <array>
#include <memory>

#include "backend/cuda/gemm/activation_rows.h"
#include "backend/cuda/gemm/cublaslt/library.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

using namespace cublaslt;

template <class T>
using Owned = std::unique_ptr<T, Code (*)(T*)>;

template <class T, class Value>
void set(Code (*function)(T*, int, const void*, std::size_t), const Owned<T>& of, int attribute, Value value) {
  const Code code = function(of.get(), attribute, &value, sizeof value);
  IMP_CHECK(code == kSuccess);  // every version has these attributes and sizes
}

template <class Value>
Value attribute_of(const Api& api, const Algorithm& algorithm, int attribute, Value otherwise) {
  Value value{};
  std::size_t n_written = 0;
  const Code code = api.get_algorithm(&algorithm, attribute, &value, sizeof value, &n_written);
  return code == kSuccess ? value : otherwise;
}

// Whether the algorithm computes each output as one sum in an order that never varies.
bool sums_in_one_order(const Api& api, const Algorithm& algorithm) {
  constexpr std::int32_t kManySplits = 2;  // 0 and 1 mean no split
  return attribute_of(api, algorithm, kAlgorithmSplits, kManySplits) < kManySplits &&
         attribute_of<std::uint32_t>(api, algorithm, kAlgorithmReduction, ~0U) == kNoReduction;
}

// Stride of prepared rows of x, in elements.
std::int64_t x_stride_of(bool is_bfloat16, std::int64_t k) {
  return activation_row_bytes(is_bfloat16 ? ActivationFormat::bf16_rows : ActivationFormat::f16_rows, k) / 2;
}

std::string text_of(std::int64_t n, std::int64_t k) {
  return std::to_string(n) + "x" + std::to_string(k);
}

}  // namespace

// A weight shape, and the descriptors of a product with it. Some of these also need the number of rows.
struct CublasLt::Shape {
  bool is_bfloat16;
  std::int64_t n, k;
  int n_buckets;
  Owned<ProductData> product;
  Owned<LayoutData> weights, x, out;
  std::array<Algorithm, kCublasLtBuckets> algorithms;

  void set_rows(const Api& api, int m, std::int64_t x_stride) const {
    set(api.set_layout, x, kLayoutColumns, static_cast<std::uint64_t>(m));
    set(api.set_layout, x, kLayoutStride, x_stride);
    set(api.set_layout, out, kLayoutColumns, static_cast<std::uint64_t>(m));
  }
};

CublasLt::CublasLt(std::vector<std::string> paths) : paths_(std::move(paths)) {}

CublasLt::~CublasLt() {
  shapes_.clear();
  if (handle_ != nullptr) api_.destroy(handle_);
}

std::string CublasLt::describe(Code code) const {
  return std::string(api_.name_of(code)) + " (" + std::to_string(code) + ")";
}

const char* CublasLt::refusal() {
  if (!is_opened_) {
    is_opened_ = true;
    refusal_ = open_cublaslt(paths_, api_);
    if (refusal_.empty()) {
      if (const Code code = api_.create(&handle_); code != kSuccess) refusal_ = "cublasLtCreate: " + describe(code);
    }
    if (!refusal_.empty()) refusal_.insert(0, "cuBLASLt is not available: ");
  }
  return refusal_.empty() ? nullptr : refusal_.c_str();
}

std::size_t CublasLt::index_of(bool is_bfloat16, std::int64_t n, std::int64_t k) const {
  const auto found = std::ranges::find_if(
      shapes_, [&](const Shape& shape) { return shape.is_bfloat16 == is_bfloat16 && shape.n == n && shape.k == k; });
  return static_cast<std::size_t>(found - shapes_.begin());
}

CublasLt::Shape CublasLt::make_shape(bool is_bfloat16, std::int64_t n, std::int64_t k) const {
  const auto layout = [&](int type, std::int64_t rows, std::int64_t columns) {
    LayoutData* made = nullptr;
    const Code code =
        api_.make_layout(&made, type, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), rows);
    IMP_CHECK(code == kSuccess);
    return Owned<LayoutData>(made, api_.free_layout);
  };
  ProductData* made = nullptr;
  IMP_CHECK(api_.make_product(&made, kComputeFloat32, kFloat32) == kSuccess);
  Owned<ProductData> product(made, api_.free_product);
  set(api_.set_product, product, kProductTransA, kTransposed);
  const int type = is_bfloat16 ? kBfloat16 : kFloat16;
  return {is_bfloat16, n, k, 0, std::move(product), layout(type, k, n), layout(type, k, 1), layout(kFloat32, n, 1), {}};
}

void CublasLt::prepare(const GemmProblem& problem) {
  IMP_CHECK(refusal() == nullptr);
  const bool is_bfloat16 = problem.weight == DType::BF16;
  for (const int n_products : {1, 2}) {
    const CublasLtPartition partition = partition_of(problem.n, problem.k, n_products);
    for (const std::int64_t n : {partition.strip_rows, last_strip(partition)}) {
      const std::size_t index = index_of(is_bfloat16, n, partition.k);
      if (index == shapes_.size()) shapes_.push_back(make_shape(is_bfloat16, n, partition.k));
      Shape& shape = shapes_[index];
      for (const int last = bucket_of(partition.part_rows); shape.n_buckets <= last; ++shape.n_buckets) {
        choose(shape, shape.n_buckets);
      }
    }
  }
}

// The algorithms that the library offers for a number of rows, the best first.
struct CublasLt::Algorithms {
  Code code = kSuccess;
  int n = 0;
  std::array<Candidate, 16> candidates = {};
};

CublasLt::Algorithms CublasLt::query(const Shape& shape, int m, std::uint32_t reductions) const {
  PreferenceData* made = nullptr;
  IMP_CHECK(api_.make_preference(&made) == kSuccess);
  const Owned<PreferenceData> preference(made, api_.free_preference);
  set(api_.set_preference, preference, kPreferenceWorkspace, std::uint64_t{CublasLtLimits::workspace_bytes});
  set(api_.set_preference, preference, kPreferenceReductions, reductions);
  Algorithms found;
  shape.set_rows(api_, m, x_stride_of(shape.is_bfloat16, shape.k));
  LayoutData* const out = shape.out.get();
  found.code =
      api_.find_algorithms(handle_, shape.product.get(), shape.weights.get(), shape.x.get(), out, out, preference.get(),
                           static_cast<int>(found.candidates.size()), found.candidates.data(), &found.n);
  if (found.code != kSuccess) found.n = 0;
  return found;
}

bool CublasLt::accepts(const Shape& shape, int m, const Candidate& candidate) const {
  constexpr std::size_t kMax = CublasLtLimits::workspace_bytes;
  if (candidate.code != kSuccess || candidate.workspace_bytes > kMax || !sums_in_one_order(api_, candidate.algorithm)) {
    return false;
  }
  Candidate checked{};
  shape.set_rows(api_, m, x_stride_of(shape.is_bfloat16, shape.k));
  LayoutData* const out = shape.out.get();
  const Code code = api_.check_algorithm(handle_, shape.product.get(), shape.weights.get(), shape.x.get(), out, out,
                                         &candidate.algorithm, &checked);
  return code == kSuccess && checked.workspace_bytes <= kMax;
}

// The best algorithm for the most rows of the bucket that also accepts the fewest. A version that rejects the mask of
// reduction schemes is asked for all algorithms.
void CublasLt::choose(Shape& shape, int bucket) const {
  Algorithms found;
  for (const std::uint32_t reductions : {kNoReduction, kAnyReduction}) {
    found = query(shape, bucket_rows(bucket), reductions);
    for (int i = 0; i < found.n; ++i) {
      const Candidate& candidate = found.candidates[static_cast<std::size_t>(i)];
      if (!accepts(shape, least_rows(bucket), candidate)) continue;
      shape.algorithms[static_cast<std::size_t>(bucket)] = candidate.algorithm;
      return;
    }
  }
  throw ModelError(Reason::MODEL_UNSUPPORTED,
                   "cuBLASLt has no algorithm for weights of " + text_of(shape.n, shape.k) + " by up to " +
                       std::to_string(bucket_rows(bucket)) + " rows that sums in one order: " +
                       (found.code == kSuccess ? std::to_string(found.n) + " were offered" : describe(found.code)));
}

Status CublasLt::multiply(const CublasLtProduct& product, void* stream) const {
  constexpr float kOne = 1, kNothing = 0;
  const std::size_t index = index_of(product.is_bfloat16, product.n, product.k);
  const int bucket = bucket_of(product.m);
  IMP_CHECK(index < shapes_.size() && bucket < shapes_[index].n_buckets);  // prepare() has added it
  const Shape& shape = shapes_[index];
  shape.set_rows(api_, product.m, product.x_stride / 2);
  const Code code = api_.multiply(handle_, shape.product.get(), &kOne, product.weights, shape.weights.get(), product.x,
                                  shape.x.get(), &kNothing, product.out, shape.out.get(), product.out, shape.out.get(),
                                  &shape.algorithms[static_cast<std::size_t>(bucket)], product.workspace,
                                  CublasLtLimits::workspace_bytes, stream);
  if (code == kSuccess) return {};
  return {StatusKind::fault, code, api_.name_of(code)};
}

}  // namespace imp::cuda
