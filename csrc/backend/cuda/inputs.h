// A step's batch on the device, at fixed addresses.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/batch.h"
#include "backend/cuda/device/runtime.h"
#include "backend/cuda/device/stream.h"

namespace imp::cuda {

// The sequences of a batch, on the device.
struct SequencesOnDevice {
  int n_sequences = 0;
  int n_rows = 0;                                 // in all sequences
  const std::int32_t* first_rows = nullptr;       // [n_sequences]
  const std::int32_t* row_counts = nullptr;       // [n_sequences]
  const std::int32_t* first_positions = nullptr;  // [n_sequences]
  const std::int32_t* first_blocks = nullptr;     // [n_sequences]: index of its first block in `blocks`
  const std::int32_t* blocks = nullptr;
  const std::int32_t* sequence_of = nullptr;  // [n_rows]
};

// Ops name parts of the batch by host spans. A span of the last uploaded batch maps to its device copy. Any other span
// is copied at once, which a captured step must not do.
class Inputs {
 public:
  explicit Inputs(Stream& stream) : stream_(stream) {}

  // For batches of up to max_rows rows in as many sequences, with n_blocks blocks together. Never shrinks.
  void reserve(int max_rows, std::int64_t n_blocks);
  static std::size_t n_bytes(int max_rows, std::int64_t n_blocks);
  std::size_t n_bytes() const noexcept;

  // Copies a batch to the device in stream order. The batch must live until the next call. Waits until the copy of the
  // batch before the last is done.
  void upload(const Batch& batch);
  void forget() noexcept { batch_ = {}; }

  const std::int32_t* tokens(std::span<const std::int32_t> tokens);
  const std::int32_t* positions(std::span<const std::int32_t> positions);
  const std::int32_t* logits_rows(std::span<const std::int32_t> rows);
  SequencesOnDevice sequences(std::span<const SequenceRows> sequences);

 private:
  // Offset of each part, in words.
  struct Offsets {
    std::int64_t tokens, positions, logits_rows, first_rows, row_counts, first_positions, first_blocks, sequence_of,
        blocks, end;
  };
  static Offsets offsets(int max_rows, std::int64_t n_blocks);
  void put(std::int64_t offset, std::span<const std::int32_t> values);
  // Values of the uploaded batch, or values that are sent now and replace those of the batch.
  const std::int32_t* staged(std::int64_t offset, std::span<const std::int32_t> values,
                             std::span<const std::int32_t>& of_batch);
  void stage_sequences(std::span<const SequenceRows> sequences);
  void send(std::int64_t begin, std::int64_t end);
  std::int32_t* words() const noexcept { return reinterpret_cast<std::int32_t*>(host_[current_].get()); }

  Stream& stream_;
  int max_rows_ = 0;
  std::int64_t n_blocks_ = 0;
  Offsets offsets_{};
  // Double buffer: the device may still read one while the host writes the other.
  std::array<std::shared_ptr<std::byte>, 2> host_;
  std::array<Event, 2> sent_;
  std::size_t current_ = 0;
  std::shared_ptr<std::byte> device_;
  Batch batch_;
  std::int64_t staged_blocks_ = 0;
};

}  // namespace imp::cuda
