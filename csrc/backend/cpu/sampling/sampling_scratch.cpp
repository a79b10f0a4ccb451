// Lays out one thread's buffers consecutively; each begins at a cache line.
#include "backend/cpu/sampling/sampling_scratch.h"

#include "backend/cpu/ops/cpu_ops.h"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

// Hands out memory; with null memory it only counts.
struct Layout {
  std::byte* memory;
  std::size_t used = 0;

  template <class T>
  void take(T*& piece, int n) {
    piece = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + used);
    used += round_up(static_cast<std::size_t>(n) * sizeof(T), 64);
  }
};

std::size_t lay_out(SamplingScratch& scratch, std::byte* memory, int vocab_size, int max_history) {
  Layout layout = {memory};
  layout.take(scratch.adjusted, vocab_size);
  layout.take(scratch.ids, vocab_size);
  layout.take(scratch.values, vocab_size);
  layout.take(scratch.weights, vocab_size);
  layout.take(scratch.order, vocab_size);
  layout.take(scratch.surprisals, vocab_size);
  layout.take(scratch.masses, vocab_size / kMassBlock + 1);
  layout.take(scratch.chunk_keys, vocab_size / kScanChunk + 1);
  layout.take(scratch.counts, vocab_size);
  layout.take(scratch.matches, max_history);
  scratch.max_history = max_history;
  return layout.used;
}

}  // namespace

std::size_t SamplingScratch::n_bytes(int vocab_size, int max_history) {
  SamplingScratch scratch;
  return lay_out(scratch, nullptr, vocab_size, max_history);
}

SamplingScratch SamplingScratch::in(std::byte* memory, int vocab_size, int max_history) {
  SamplingScratch scratch;
  lay_out(scratch, memory, vocab_size, max_history);
  return scratch;
}

}  // namespace imp::cpu
