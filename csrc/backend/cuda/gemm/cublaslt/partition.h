// Divides a product by cuBLASLt so that its scratch is bounded: strips of the weight's rows, each decoded once to
// 16-bit elements, times parts of x's rows.
#pragma once

#include <algorithm>
#include <bit>

#include "backend/cuda/gemm/cublaslt/limits.h"
#include "backend/cuda/gemm/tiles.h"
#include "base/ceil_div.h"

namespace imp::cuda {

constexpr int kCublasLtMinPart = 16;
constexpr std::size_t kCublasLtAlignment = 256;

// For one weight, or for a gate and its product.
struct CublasLtPartition {
  std::int64_t n_rows = 0;      // of the weight, padded to a multiple of 16
  std::int64_t k = 0;           // elements of a row, padded to a tile
  std::int64_t strip_rows = 0;  // of the weight at a time, a multiple of 16
  int part_rows = 0;            // of x at a time, a power of two
};

constexpr CublasLtPartition partition_of(std::int64_t n, std::int64_t k, int n_products) {
  using Most = CublasLtLimits;
  constexpr std::int64_t kLine = 128;  // rows that a large strip is a multiple of
  CublasLtPartition partition = {.n_rows = strips_of(n) * kTileRows, .k = tiles_along(k) * kTileElements};
  std::int64_t rows = std::min(Most::weight_bytes / (n_products * 2 * partition.k), Most::strip_rows);
  rows -= rows % (rows >= kLine ? kLine : kTileRows);
  partition.strip_rows = std::clamp(rows, std::int64_t{kTileRows}, partition.n_rows);
  const std::int64_t parts = Most::product_bytes / (n_products * 4 * partition.strip_rows);
  partition.part_rows = std::clamp(static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(parts))),
                                   kCublasLtMinPart, Most::part_rows);
  return partition;
}
// Rows of the last strip.
constexpr std::int64_t last_strip(const CublasLtPartition& partition) {
  return (partition.n_rows - 1) % partition.strip_rows + 1;
}

// Offsets in the scratch. The workspace is first.
struct CublasLtScratch {
  std::size_t weights, units, products;                 // of the first of them
  std::size_t weight_bytes, unit_bytes, product_bytes;  // of each
  std::size_t end;
};
constexpr CublasLtScratch scratch_of(const CublasLtPartition& partition, int n_products, int m) {
  const auto rounded = [](std::int64_t n_bytes) {
    return round_up(static_cast<std::size_t>(n_bytes), kCublasLtAlignment);
  };
  const auto n = static_cast<std::size_t>(n_products);
  CublasLtScratch scratch = {.weights = CublasLtLimits::workspace_bytes,
                             .units = 0,
                             .products = 0,
                             .weight_bytes = rounded(partition.strip_rows * partition.k * 2),
                             .unit_bytes = rounded(partition.strip_rows * 4),
                             .product_bytes = rounded(std::min(m, partition.part_rows) * partition.strip_rows * 4),
                             .end = 0};
  scratch.units = scratch.weights + n * scratch.weight_bytes;
  scratch.products = scratch.units + n * scratch.unit_bytes;
  scratch.end = scratch.products + n * scratch.product_bytes;
  return scratch;
}

// An algorithm is chosen for each of these numbers of rows. It serves all numbers above the one before.
constexpr int kCublasLtBuckets = 8;  // 16, 32, ... 2048
constexpr int bucket_rows(int bucket) {
  return kCublasLtMinPart << bucket;
}
constexpr int bucket_of(int m) {
  int bucket = 0;
  while (bucket_rows(bucket) < m) ++bucket;
  return bucket;
}
// The fewest rows of a bucket.
constexpr int least_rows(int bucket) {
  return bucket == 0 ? 1 : bucket_rows(bucket - 1) + 1;
}
static_assert(bucket_of(CublasLtLimits::part_rows) < kCublasLtBuckets);

}  // namespace imp::cuda
