// The functions of cuBLASLt that imp calls, by NVIDIA's documentation, for the emulated device.
//
// The constants are copied from the documentation and not from the code under test, so that an error there is detected.
// IMP_EMULATED_CUBLASLT lists what fails: create, heuristic, multiply; "strict": no algorithm works without a
// reduction; "unwanted": the heuristic ignores the preference.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tensor/half.h"

#define IMP_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Code : int { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Type : int { R_32F = 0, R_16F = 2, R_16BF = 14 };
constexpr int COMPUTE_32F = 68;
enum Operation : std::int32_t { OP_N = 0, OP_T = 1 };
enum Order : std::int32_t { ORDER_COL = 0, ORDER_ROW = 1 };

struct Handle {
  std::uint32_t is_alive = 0x4C54;
};

struct Product {
  std::int32_t compute_type = COMPUTE_32F, scale_type = R_32F;
  std::int32_t operation_a = OP_N, operation_b = OP_N;
};

struct Layout {
  std::uint32_t type = R_32F;
  std::int32_t order = ORDER_COL;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t stride = 0;

  std::size_t at(std::uint64_t row, std::uint64_t column) const {
    const auto step = static_cast<std::uint64_t>(stride);
    return order == ORDER_COL ? column * step + row : row * step + column;
  }
  bool is_whole() const {
    return stride >= static_cast<std::int64_t>(order == ORDER_COL ? rows : columns) && rows > 0 && columns > 0;
  }
};

struct Preference {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reductions = 7;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

struct Algorithm {
  std::uint64_t n_splits;
  std::uint64_t reduction;
  std::uint64_t only_columns;  // of the product; 0: any number
  std::uint64_t workspace_bytes;
  std::uint64_t alignment[4];
};

struct Found {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int code;
  float waves;
  int reserved[4];
};

bool is_to_fail(const char* what) {
  const char* const words = std::getenv("IMP_EMULATED_CUBLASLT");
  return words != nullptr && std::string(words).find(what) != std::string::npos;
}

template <class T>
int store(T& to, const void* from, std::size_t n_bytes) {
  if (from == nullptr || n_bytes != sizeof to) return INVALID_VALUE;
  std::memcpy(&to, from, sizeof to);
  return SUCCESS;
}

// A 16-bit element's value.
float value_of(const Layout& layout, const void* data, std::uint64_t row, std::uint64_t column) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(data) + layout.at(row, column) * 2, 2);
  return layout.type == R_16F ? imp::f16_to_f32(bits) : imp::bf16_to_f32(bits);
}

// An operand as rows of k elements; a product multiplies the rows of two operands.
std::vector<float> rows_of(const Layout& layout, bool k_is_down, const void* data) {
  const std::uint64_t n = k_is_down ? layout.columns : layout.rows, k = k_is_down ? layout.rows : layout.columns;
  std::vector<float> values(n * k);
  for (std::uint64_t i = 0; i < n; ++i) {
    for (std::uint64_t j = 0; j < k; ++j) {
      values[i * k + j] = k_is_down ? value_of(layout, data, j, i) : value_of(layout, data, i, j);
    }
  }
  return values;
}

// Whether sizes and types match.
int check(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const bool a_turned = product.operation_a == OP_T, b_turned = product.operation_b == OP_T;
  const std::uint64_t m = a_turned ? a.columns : a.rows, k = a_turned ? a.rows : a.columns;
  const std::uint64_t n = b_turned ? b.rows : b.columns, k_of_b = b_turned ? b.columns : b.rows;
  const bool fits = k == k_of_b && d.rows == m && d.columns == n && c.rows == m && c.columns == n;
  if (!fits || !a.is_whole() || !b.is_whole() || !c.is_whole() || !d.is_whole()) return INVALID_VALUE;
  const bool has_types = a.type == b.type && (a.type == R_16F || a.type == R_16BF) && c.type == R_32F &&
                         d.type == R_32F && product.compute_type == COMPUTE_32F && product.scale_type == R_32F;
  return has_types ? SUCCESS : NOT_SUPPORTED;
}

int check(const Product& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
          const Algorithm& algorithm) {
  const bool takes_columns = algorithm.only_columns == 0 || algorithm.only_columns == d.columns;
  const int code = check(product, a, b, c, d);
  return code == SUCCESS && !takes_columns ? NOT_SUPPORTED : code;
}

bool is_aligned(const void* pointer, std::uint64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

}  // namespace

IMP_EXPORT int cublasLtCreate(Handle** handle) {
  if (is_to_fail("create")) return NOT_INITIALIZED;
  *handle = new Handle;
  return SUCCESS;
}

IMP_EXPORT int cublasLtDestroy(Handle* handle) {
  handle->is_alive = 0;
  delete handle;
  return SUCCESS;
}

IMP_EXPORT const char* cublasLtGetStatusName(int code) {
  switch (code) {
    case SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
}

IMP_EXPORT int cublasLtMatmulDescCreate(Product** product, int compute_type, int scale_type) {
  *product = new Product{compute_type, scale_type, OP_N, OP_N};
  return SUCCESS;
}

IMP_EXPORT int cublasLtMatmulDescDestroy(Product* product) {
  delete product;
  return SUCCESS;
}

IMP_EXPORT int cublasLtMatmulDescSetAttribute(Product* product, int attribute, const void* from, std::size_t n_bytes) {
  if (attribute == 3) return store(product->operation_a, from, n_bytes);
  if (attribute == 4) return store(product->operation_b, from, n_bytes);
  return INVALID_VALUE;
}

IMP_EXPORT int cublasLtMatrixLayoutCreate(Layout** layout, int type, std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t stride) {
  *layout = new Layout{static_cast<std::uint32_t>(type), ORDER_COL, rows, columns, stride};
  return SUCCESS;
}

IMP_EXPORT int cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return SUCCESS;
}

IMP_EXPORT int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* from, std::size_t n_bytes) {
  switch (attribute) {
    case 0:
      return store(layout->type, from, n_bytes);
    case 1:
      return store(layout->order, from, n_bytes);
    case 2:
      return store(layout->rows, from, n_bytes);
    case 3:
      return store(layout->columns, from, n_bytes);
    case 4:
      return store(layout->stride, from, n_bytes);
    default:
      return INVALID_VALUE;
  }
}

IMP_EXPORT int cublasLtMatmulPreferenceCreate(Preference** preference) {
  *preference = new Preference;
  return SUCCESS;
}

IMP_EXPORT int cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return SUCCESS;
}

IMP_EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* from,
                                                    std::size_t n_bytes) {
  if (attribute == 1) return store(preference->workspace_bytes, from, n_bytes);
  if (attribute == 3) return store(preference->reductions, from, n_bytes);
  if (attribute >= 5 && attribute <= 8)
    return store(preference->alignment[attribute - 5], from, n_bytes);  // alignments of a to d
  return INVALID_VALUE;
}

// Returns, the best first: the algorithms with splits and with large workspaces that the preference allows, one that
// takes only this number of columns, and one that takes any number.
IMP_EXPORT int cublasLtMatmulAlgoGetHeuristic(Handle*, Product* product, Layout* a, Layout* b, Layout* c, Layout* d,
                                              Preference* preference, int n_wanted, Found* found, int* n_found) {
  *n_found = 0;
  if (const int code = check(*product, *a, *b, *c, *d); code != SUCCESS) return code;
  if (is_to_fail("heuristic") || (is_to_fail("strict") && preference->reductions == 0)) return NOT_SUPPORTED;
  const bool takes_all = is_to_fail("unwanted");
  const auto offer = [&](std::uint64_t n_splits, std::uint64_t reduction, std::uint64_t only_columns,
                         std::uint64_t workspace_bytes) {
    const bool is_allowed =
        (reduction & ~std::uint64_t{preference->reductions}) == 0 && workspace_bytes <= preference->workspace_bytes;
    if (*n_found == n_wanted || !(is_allowed || takes_all)) return;
    Found& to = found[(*n_found)++];
    to = {{n_splits, reduction, only_columns, workspace_bytes, {}}, workspace_bytes, SUCCESS, 1.0F, {}};
    for (int i = 0; i < 4; ++i) to.algorithm.alignment[i] = preference->alignment[i];
  };
  offer(4, 2, 0, 0);
  offer(1, 0, 0, preference->workspace_bytes + 1);
  offer(1, 0, d->columns, 0);
  offer(1, 0, 0, preference->workspace_bytes);
  return *n_found > 0 ? SUCCESS : NOT_SUPPORTED;
}

IMP_EXPORT int cublasLtMatmulAlgoCheck(Handle*, Product* product, Layout* a, Layout* b, Layout* c, Layout* d,
                                       const Algorithm* algorithm, Found* result) {
  if (const int code = check(*product, *a, *b, *c, *d, *algorithm); code != SUCCESS) return code;
  result->workspace_bytes = algorithm->workspace_bytes;
  result->code = SUCCESS;
  return SUCCESS;
}

IMP_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algorithm* algorithm, int attribute, void* to,
                                                    std::size_t n_bytes, std::size_t* n_written) {
  if (n_bytes != 4 || (attribute != 2 && attribute != 3)) return INVALID_VALUE;
  const auto value = static_cast<std::uint32_t>(attribute == 2 ? algorithm->n_splits : algorithm->reduction);
  std::memcpy(to, &value, 4);
  *n_written = 4;
  return SUCCESS;
}

// An algorithm may write anything to its workspace. Algorithms with splits fail, because they sum in another order.
IMP_EXPORT int cublasLtMatmul(Handle* handle, Product* product, const void* alpha, const void* a, Layout* a_layout,
                              const void* b, Layout* b_layout, const void* beta, const void* c, Layout* c_layout,
                              void* d, Layout* d_layout, const Algorithm* algorithm, void* workspace,
                              std::size_t workspace_bytes, void*) {
  if (handle->is_alive != Handle{}.is_alive || algorithm == nullptr) return INVALID_VALUE;
  const int code = check(*product, *a_layout, *b_layout, *c_layout, *d_layout, *algorithm);
  if (code != SUCCESS) return code;
  const void* const pointers[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (!is_aligned(pointers[i], algorithm->alignment[i])) return INVALID_VALUE;
  }
  if (workspace_bytes < algorithm->workspace_bytes) return INVALID_VALUE;
  if (is_to_fail("multiply") || algorithm->n_splits != 1) return EXECUTION_FAILED;
  std::memset(workspace, 0xC3, algorithm->workspace_bytes);
  float by = 0, keep = 0;
  std::memcpy(&by, alpha, sizeof by);
  std::memcpy(&keep, beta, sizeof keep);
  const std::vector<float> rows = rows_of(*a_layout, product->operation_a == OP_T, a);
  const std::vector<float> columns = rows_of(*b_layout, product->operation_b == OP_N, b);
  const std::uint64_t k = rows.size() / d_layout->rows;
  for (std::uint64_t column = 0; column < d_layout->columns; ++column) {
    for (std::uint64_t row = 0; row < d_layout->rows; ++row) {
      double sum = 0;
      for (std::uint64_t i = 0; i < k; ++i) sum += double{rows[row * k + i]} * columns[column * k + i];
      float* const to = static_cast<float*>(d) + d_layout->at(row, column);
      const float* const before = static_cast<const float*>(c) + c_layout->at(row, column);
      *to = static_cast<float>(by * sum) +
            (keep != 0 ? keep * *before : 0.0F);  // the old value is read only if it is used
    }
  }
  return SUCCESS;
}
