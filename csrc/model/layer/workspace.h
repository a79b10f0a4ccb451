// The activations of a forward pass: each buffer is declared once, and the declaration makes it or counts its bytes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace imp {

// Buffers that hold a row for each row of a batch. The buffers and the backend must outlive it.
class Workspace {
 public:
  // Counts bytes and makes nothing.
  explicit Workspace(int max_rows) noexcept : max_rows_(max_rows) {}
  Workspace(int max_rows, Backend& backend);

  // A buffer with `per_row` rows of this width for each row of a batch.
  void add(Rows& buffer, std::int64_t width, int per_row = 1);
  void add(ExpertRows& buffer, const ExpertRouting& routing);

  // Sets the rows in use of every buffer to those of a batch with n rows.
  void use(std::size_t n);

  std::uint64_t n_bytes() const noexcept { return n_bytes_; }

 private:
  int max_rows_;
  Backend* backend_ = nullptr;
  std::uint64_t n_bytes_ = 0;
  std::vector<std::pair<Rows*, int>> buffers_;  // with the rows of each for one row of a batch
  std::vector<ExpertRows*> expert_rows_;
};

}  // namespace imp
