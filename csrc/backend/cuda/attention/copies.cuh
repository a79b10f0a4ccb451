// Copies keys and values from the cache to shared memory (cp.async).
#pragma once

#include "backend/cuda/attention/tile.cuh"

namespace imp::cuda {

// The cache blocks of up to 32 runs of 16 keys from `first` on, one per lane. `blocks` are those of the sequence.
// Blocks whose keys are masked are not read.
__device__ __forceinline__ int block_of_lane(const KvLayerView& cache, const std::int32_t* blocks, int n_runs,
                                             int first, const KeyRange& seen) {
  const int lane = lane_of_thread();
  const int position = first + lane * kStepKeys;
  if (lane >= n_runs || position >= seen.end || position + kStepKeys <= seen.first) return 0;
  return blocks[cache.block_of(position)];
}

// 16 consecutive keys of one part.
struct RunOfKeys {
  const std::byte* part;  // in the block that holds them
  int offset;             // of the first key in its block
  int begin, n;           // keys to read; the others become zeros
};

__device__ __forceinline__ RunOfKeys run_of_keys(const KvLayerView& cache, int block, int kv_head, int which, int first,
                                                 const KeyRange& seen) {
  const int begin = seen.first > first ? seen.first - first : 0;
  const int end = seen.end - first < kStepKeys ? seen.end - first : kStepKeys;
  return {cache.part(block, kv_head, which), cache.offset_in_block(first), begin, end > begin ? end - begin : 0};
}

// One thread's share of the copies of a run, in chunks of 16 bytes: the same columns of every kRows-th row. kThreads
// threads share a run. 16-bit elements go to swizzled_index(); quantized codes are contiguous.
template <int kElementBytes, int kColumns, int kThreads>
struct ShareOfRows {
  static constexpr int kRowBytes = kColumns * kElementBytes;
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kRows = kThreads / kChunks;
  static constexpr int kTimes = ceil_div(kStepKeys, kRows);

  int row;        // the first; kNone: the columns are beyond head_dim
  unsigned from;  // bytes from the first row's first
  unsigned to;

  static constexpr unsigned chunk_offset(int row, int chunk) {
    if constexpr (kElementBytes == 2) return static_cast<unsigned>(swizzled_index<kColumns>(row, chunk)) * 2;
    return static_cast<unsigned>(row * kRowBytes + chunk * 16);
  }
  // Whether the offset of a row is that of row % kRows, XORed with the offset of the difference. Then a loop over rows
  // needs one XOR each.
  static constexpr bool repeats() {
    for (int row = 0; row < kStepKeys; ++row) {
      const int first = row % kRows;
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        if (chunk_offset(row, chunk) != (chunk_offset(first, chunk) ^ chunk_offset(row - first, 0))) return false;
      }
    }
    return true;
  }

  __device__ __forceinline__ static ShareOfRows make(int thread, int first_column, int head_dim) {
    static_assert(repeats());
    constexpr int kNone = 1 << 16;
    const int row = static_cast<int>(static_cast<unsigned>(thread) / kChunks);
    const int chunk = static_cast<int>(static_cast<unsigned>(thread) % kChunks);
    const int column = first_column + chunk * (16 / kElementBytes);
    return {column < head_dim ? row : kNone, static_cast<unsigned>((row * head_dim + column) * kElementBytes),
            chunk_offset(row, chunk)};
  }

  // Starts to copy the thread's share of the run to `rows`. Keys in the cache are head_dim elements apart.
  __device__ __forceinline__ void begin(const RunOfKeys& run, int head_dim, std::byte* rows) const {
    if (kRows > kStepKeys && row >= kStepKeys) return;
    const auto row_bytes = static_cast<unsigned>(head_dim * kElementBytes);
    const std::byte* const keys = run.part + static_cast<unsigned>(run.offset) * row_bytes + from;
    IMP_UNROLL
    for (int i = 0; i < kTimes; ++i) {
      const bool exists = static_cast<unsigned>(row + i * kRows - run.begin) < static_cast<unsigned>(run.n);
      arch::begin_copy16(rows + (to ^ chunk_offset(i * kRows, 0)), keys + static_cast<unsigned>(i * kRows) * row_bytes,
                         exists);
    }
  }
};

// Codes and scales of kKeys keys as in the cache: codes [kKeys][kColumns], then per run of 16 keys the scales of whole
// rows, padded to kDim columns.
template <int kKeys, int kColumns, int kDim>
struct QuantizedRows {
  static constexpr int kScaleBytesOfRun = kStepKeys * kDim / kKvGroup * 2;
  static constexpr int kCodeBytes = kKeys * kColumns;
  static constexpr int kBytes = kCodeBytes + kKeys / kStepKeys * kScaleBytesOfRun;
};

// The scales of a run, 16 · scale_bytes() in chunks of 16 bytes: at most one chunk per thread.
__device__ __forceinline__ void begin_scales(const KvLayerView& cache, const RunOfKeys& run, int thread,
                                             std::byte* scales) {
  if (thread >= cache.scale_bytes()) return;
  const std::byte* const from = run.part + cache.first_scale() + run.offset * cache.scale_bytes() + thread * 16;
  arch::begin_copy16(scales + thread * 16, from, run.n > 0);
}

// One thread's share of the copies of kColumns columns of keys: 16-bit rows, or codes and scales. Rows have kDim
// columns.
template <class Kv, int kKeys, int kColumns, int kDim, int kThreads>
struct ShareOfKeys {
  ShareOfRows<Kv::kQuantized ? 1 : 2, kColumns, kThreads> rows;

  __device__ __forceinline__ static ShareOfKeys make(int thread, int first_column, int head_dim) {
    return {decltype(rows)::make(thread, first_column, head_dim)};
  }
  // `to` has space for kKeys keys; the run becomes its 16 keys with index `number`.
  __device__ __forceinline__ void begin(const KvLayerView& cache, const RunOfKeys& run, int thread, int number,
                                        std::byte* to) const {
    rows.begin(run, cache.head_dim, to + number * kStepKeys * decltype(rows)::kRowBytes);
    if constexpr (Kv::kQuantized) {
      using Layout = QuantizedRows<kKeys, kColumns, kDim>;
      begin_scales(cache, run, thread, to + Layout::kCodeBytes + number * Layout::kScaleBytesOfRun);
    }
  }
};

// Dequantizes rows to 16 bits. The first row is key `first`. Masked keys become zeros.
template <int kKeys, int kColumns, int kDim, int kThreads>
__device__ __forceinline__ void dequantize_rows(const KvLayerView& cache, const std::byte* from, int first_column,
                                                int thread, int first, const KeyRange& seen, std::uint16_t* rows) {
  using Layout = QuantizedRows<kKeys, kColumns, kDim>;
  constexpr int kChunks = kColumns / 16;
  for (int item = thread; item < kKeys * kChunks; item += kThreads) {
    const int row = item / kChunks;
    const int chunk = item % kChunks;
    const int column = first_column + chunk * 16;
    arch::Vec16 halves[2] = {};
    if (first + row >= seen.first && first + row < seen.end && column < cache.head_dim) {
      const arch::Vec16 codes = *reinterpret_cast<const arch::Vec16*>(from + row * kColumns + chunk * 16);
      const std::byte* const scales = from + Layout::kCodeBytes + row / kStepKeys * Layout::kScaleBytesOfRun;
      const std::uint32_t scale = *reinterpret_cast<const std::uint16_t*>(
          scales + row % kStepKeys * cache.scale_bytes() + column / kKvGroup * 2);
      IMP_UNROLL
      for (int i = 0; i < 8; ++i) {
        halves[i / 4].word[i % 4] = dequantize_codes(codes.word[i / 2], i % 2, scale | scale << 16);
      }
    }
    IMP_UNROLL
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<arch::Vec16*>(rows + swizzled_index<kColumns>(row, 2 * chunk + i)) = halves[i];
    }
  }
}

}  // namespace imp::cuda
