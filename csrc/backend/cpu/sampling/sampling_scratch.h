// One thread's buffers for sampling a row.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cpu {

struct SamplingScratch {
  float* adjusted = nullptr;           // [vocab] logits after penalties, bias and masks
  std::int32_t* ids = nullptr;         // [vocab] candidates, ascending
  float* values = nullptr;             // [vocab] their logits
  std::uint64_t* weights = nullptr;    // [vocab] their weights
  std::uint64_t* order = nullptr;      // [vocab] keys of an order
  double* surprisals = nullptr;        // [vocab] negative log-probabilities
  std::uint64_t* masses = nullptr;     // sum of the weights of each block
  std::int32_t* chunk_keys = nullptr;  // greatest key of each chunk
  std::int32_t* counts = nullptr;      // [vocab] counts for the penalties
  std::int32_t* matches = nullptr;     // [max_history] lengths of repeated suffixes
  std::int64_t max_history = 0;

  static std::size_t n_bytes(int vocab_size, int max_history);
  // Lays out the buffers in n_bytes() of zeroed memory.
  static SamplingScratch in(std::byte* memory, int vocab_size, int max_history);
};

}  // namespace imp::cpu
