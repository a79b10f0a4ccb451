// Keys and values on their way from the cache to shared memory.
#pragma once

#include "backend/cuda/attention/tile.cuh"

namespace imp::cuda {

// 16 keys of one part that follow each other.
struct RunOfKeys {
  const std::byte* part;  // of the block that holds them
  int place;              // of the first in its block
  int begin, end;         // those that are read; zeros stand for the others
};

// `blocks` are those of the sequence. Of keys that are not seen no block is asked for.
__device__ __forceinline__ RunOfKeys run_of_keys(const KvPlaces& cache, const std::int32_t* blocks, int kv_head,
                                                 int which, int first, const Seen& seen) {
  const int begin = seen.first > first ? seen.first - first : 0;
  const int end = seen.end - first < kStepKeys ? seen.end - first : kStepKeys;
  if (begin >= end) return {cache.layer, 0, 0, 0};
  return {cache.part(blocks[cache.block_of(first)], kv_head, which), cache.place_of(first), begin, end};
}

// 16-bit rows of kColumns, the first of which is row_of_first (a multiple of 16) of `rows`. Shared by kThreads threads.
template <int kColumns, int kThreads>
__device__ __forceinline__ void begin_rows(const KvPlaces& cache, const RunOfKeys& run, int first_column, int thread,
                                           int row_of_first, std::uint16_t* rows) {
  constexpr int kChunks = kColumns / kChunkElements;
  IMP_UNROLL
  for (int i = 0; i < divided_up(kStepKeys * kChunks, kThreads); ++i) {
    const int item = i * kThreads + thread;
    if (kStepKeys * kChunks % kThreads != 0 && item >= kStepKeys * kChunks) break;
    const int row = item / kChunks;
    const int chunk = item % kChunks;
    const int column = first_column + chunk * kChunkElements;
    const bool exists = row >= run.begin && row < run.end && column < cache.head_dim;
    const std::byte* const from = exists ? run.part + ((run.place + row) * cache.head_dim + column) * 2 : cache.layer;
    arch::begin_copy16(rows + place_in_rows<kColumns>(row_of_first + row, chunk), from, exists);
  }
}

// Codes and scales of kKeys keys as they lie in the cache: codes [kKeys][kColumns] and, by runs of 16 keys, the scales
// of whole rows in room for kDim columns.
template <int kKeys, int kColumns, int kDim>
struct CodedRows {
  static constexpr int kScaleBytesOfRun = kStepKeys * kDim / kKvGroup * 2;
  static constexpr int kCodeBytes = kKeys * kColumns;
  static constexpr int kBytes = kCodeBytes + kKeys / kStepKeys * kScaleBytesOfRun;
};

template <int kKeys, int kColumns, int kDim, int kThreads>
__device__ __forceinline__ void begin_codes(const KvPlaces& cache, const RunOfKeys& run, int first_column, int thread,
                                            int row_of_first, std::byte* to) {
  using Layout = CodedRows<kKeys, kColumns, kDim>;
  constexpr int kChunks = kColumns / 16;
  for (int item = thread; item < kStepKeys * kChunks; item += kThreads) {
    const int row = item / kChunks;
    const int column = first_column + item % kChunks * 16;
    const bool exists = row >= run.begin && row < run.end && column < cache.head_dim;
    const std::byte* const from = exists ? run.part + (run.place + row) * cache.head_dim + column : cache.layer;
    arch::begin_copy16(to + (row_of_first + row) * kColumns + item % kChunks * 16, from, exists);
  }
  std::byte* const scales = to + Layout::kCodeBytes + row_of_first / kStepKeys * Layout::kScaleBytesOfRun;
  for (int item = thread; item < cache.scale_bytes(); item += kThreads) {  // 16 · scale_bytes() in pieces of 16
    const bool exists = run.begin < run.end;
    const std::byte* const from =
        exists ? run.part + cache.first_scale() + run.place * cache.scale_bytes() + item * 16 : cache.layer;
    arch::begin_copy16(scales + item * 16, from, exists);
  }
}

// Makes 16-bit rows of coded ones, the first of which is of key `first`; zeros of those that are not seen.
template <int kKeys, int kColumns, int kDim, int kThreads>
__device__ __forceinline__ void expand_rows(const KvPlaces& cache, const std::byte* from, int first_column, int thread,
                                            int first, const Seen& seen, std::uint16_t* rows) {
  using Layout = CodedRows<kKeys, kColumns, kDim>;
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
        halves[i / 4].word[i % 4] = expand_codes(codes.word[i / 2], i % 2, scale | scale << 16);
      }
    }
    IMP_UNROLL
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<arch::Vec16*>(rows + place_in_rows<kColumns>(row, 2 * chunk + i)) = halves[i];
    }
  }
}

}  // namespace imp::cuda
