// Stores all parts of a batch contiguously, so that one copy uploads them.
#include "backend/cuda/inputs.h"

#include <algorithm>

#include "backend/cuda/device/device_memory.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

constexpr std::size_t kWord = sizeof(std::int32_t);

template <class T>
bool is_same(std::span<const T> a, std::span<const T> b) {
  return !a.empty() && a.data() == b.data() && a.size() == b.size();
}

}  // namespace

Inputs::Offsets Inputs::offsets(int max_rows, std::int64_t n_blocks) {
  const std::int64_t n = round_up(max_rows, 32);
  return {.tokens = 0,
          .positions = n,
          .logits_rows = 2 * n,
          .first_rows = 3 * n,
          .row_counts = 4 * n,
          .first_positions = 5 * n,
          .first_blocks = 6 * n,
          .sequence_of = 7 * n,
          .blocks = 8 * n,
          .end = 8 * n + n_blocks};
}

std::size_t Inputs::n_bytes(int max_rows, std::int64_t n_blocks) {
  return static_cast<std::size_t>(offsets(max_rows, n_blocks).end) * kWord;
}

std::size_t Inputs::n_bytes() const noexcept {
  return static_cast<std::size_t>(offsets_.end) * kWord;
}

void Inputs::reserve(int max_rows, std::int64_t n_blocks) {
  if (max_rows <= max_rows_ && n_blocks <= n_blocks_) return;
  max_rows_ = std::max(max_rows_, max_rows);
  n_blocks_ = std::max(n_blocks_, n_blocks);
  offsets_ = offsets(max_rows_, n_blocks_);
  for (std::shared_ptr<std::byte>& host : host_) host = allocate_staging(n_bytes());
  device_ = allocate_on_device(n_bytes());
  forget();
}

void Inputs::send(std::int64_t begin, std::int64_t end) {
  IMP_CHECK(stream_.captured == nullptr);
  const std::size_t offset = static_cast<std::size_t>(begin) * kWord;
  copy_to_device(stream_, device_.get() + offset, host_[current_].get() + offset,
                 static_cast<std::size_t>(end - begin) * kWord);
  sent_[current_].record(stream_);
}

void Inputs::put(std::int64_t offset, std::span<const std::int32_t> values) {
  IMP_CHECK(static_cast<int>(values.size()) <= max_rows_);
  std::ranges::copy(values, words() + offset);
}

void Inputs::stage_sequences(std::span<const SequenceRows> sequences) {
  std::int32_t* const words = this->words();
  IMP_CHECK(static_cast<int>(sequences.size()) <= max_rows_);
  staged_blocks_ = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRows& sequence = sequences[i];
    const auto at = static_cast<std::int64_t>(i);
    words[offsets_.first_rows + at] = sequence.first_row;
    words[offsets_.row_counts + at] = sequence.n_rows;
    words[offsets_.first_positions + at] = sequence.first_position;
    words[offsets_.first_blocks + at] = static_cast<std::int32_t>(staged_blocks_);
    IMP_CHECK(staged_blocks_ + static_cast<std::int64_t>(sequence.blocks.size()) <= n_blocks_);
    std::ranges::copy(sequence.blocks, words + offsets_.blocks + staged_blocks_);
    staged_blocks_ += static_cast<std::int64_t>(sequence.blocks.size());
    IMP_CHECK(sequence.first_row + sequence.n_rows <= max_rows_);
    std::fill_n(words + offsets_.sequence_of + sequence.first_row, sequence.n_rows, static_cast<std::int32_t>(i));
  }
}

void Inputs::upload(const Batch& batch) {
  current_ = 1 - current_;
  sent_[current_].wait(stream_);
  put(offsets_.tokens, batch.tokens);
  put(offsets_.positions, batch.positions);
  put(offsets_.logits_rows, batch.logits_rows);
  stage_sequences(batch.sequences);
  batch_ = batch;
  send(0, offsets_.blocks + staged_blocks_);
}

const std::int32_t* Inputs::staged(std::int64_t offset, std::span<const std::int32_t> values,
                                   std::span<const std::int32_t>& of_batch) {
  if (!is_same(values, of_batch)) {
    of_batch = {};  // the values overwrite it
    sent_[current_].wait(stream_);
    put(offset, values);
    send(offset, offset + static_cast<std::int64_t>(values.size()));
  }
  return reinterpret_cast<const std::int32_t*>(device_.get()) + offset;
}

const std::int32_t* Inputs::tokens(std::span<const std::int32_t> tokens) {
  return staged(offsets_.tokens, tokens, batch_.tokens);
}

const std::int32_t* Inputs::positions(std::span<const std::int32_t> positions) {
  return staged(offsets_.positions, positions, batch_.positions);
}

const std::int32_t* Inputs::logits_rows(std::span<const std::int32_t> rows) {
  return staged(offsets_.logits_rows, rows, batch_.logits_rows);
}

SequencesOnDevice Inputs::sequences(std::span<const SequenceRows> sequences) {
  if (!is_same(sequences, batch_.sequences)) {
    sent_[current_].wait(stream_);
    stage_sequences(sequences);
    send(offsets_.first_rows, offsets_.blocks + staged_blocks_);
  }
  const auto* const words = reinterpret_cast<const std::int32_t*>(device_.get());
  int n_rows = 0;
  for (const SequenceRows& sequence : sequences) n_rows = std::max(n_rows, sequence.first_row + sequence.n_rows);
  return {.n_sequences = static_cast<int>(sequences.size()),
          .n_rows = n_rows,
          .first_rows = words + offsets_.first_rows,
          .row_counts = words + offsets_.row_counts,
          .first_positions = words + offsets_.first_positions,
          .first_blocks = words + offsets_.first_blocks,
          .blocks = words + offsets_.blocks,
          .sequence_of = words + offsets_.sequence_of};
}

}  // namespace imp::cuda
