// What one thread needs to sample a row: buffers as long as the vocabulary, and one as long as the context.
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
  double* surprises = nullptr;         // [vocab] minus their log-probabilities
  std::uint64_t* masses = nullptr;     // a sum of weights per block
  std::int32_t* chunk_keys = nullptr;  // the greatest key per chunk
  std::int32_t* counts = nullptr;      // [vocab] of the ids that a penalty concerns
  std::int32_t* matches = nullptr;     // [max_history] lengths of repeated suffixes
  std::int64_t max_history = 0;

  static std::size_t n_bytes(int vocab_size, int max_history);
  // Lays the buffers out in n_bytes() of zeroed memory.
  static SamplingScratch in(std::byte* memory, int vocab_size, int max_history);
};

}  // namespace imp::cpu
