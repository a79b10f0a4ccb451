// The vectors that a script makes of texts.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/batch.h"
#include "backend/rows.h"

namespace imp::testing {

// The types of a sequence's rows; empty if the batch has none.
std::vector<std::int32_t> types_of(const Batch& batch, const SequenceRows& sequence);

// Of the tokens of a text and their types.
struct TextHash {
  std::uint64_t bits = 0;
  bool is_zero = false;
  bool is_broken = false;

  void add(std::int32_t token, std::int32_t type) noexcept;
};

// The vectors of a batch.
class MadeVectors {
 public:
  void clear() noexcept;
  void add(const TextHash& text, int width);
  Rows rows() const;

 private:
  int n_rows_ = 0;
  int width_ = 0;
  std::vector<float> values_;
};

}  // namespace imp::testing
