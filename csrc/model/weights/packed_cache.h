// A file that keeps a model's packed weights between starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "files/packed_file.h"
#include "model/weights/weight_plan.h"

namespace imp {

// A matrix of the plan, and which part of the tensor it is.
struct PlacedMatrix {
  const PlannedWeight* weight = nullptr;
  RowOrder order = RowOrder::file;
  int index = 0;  // index among the tensor's matrices
};

// Each model path with the layouts of a plan has one cache file. Its key has the versions of the model's files (size,
// times, inode), the meaning of the scales of 8-bit weights, every matrix with its offset, shape, type, row order and
// layout, and the revision of the layouts. A file that is damaged or has another key is ignored, and the next write()
// replaces it.
class PackedCache {
 public:
  // `matrices` in the order of their parts. Does not throw for an unusable folder; reading and writing do.
  PackedCache(const std::string& folder, const ModelFile& file, std::span<const PlacedMatrix> matrices, int head_dim);

  const std::string& path() const noexcept { return path_; }
  // Throws ModelError if there is no usable file.
  std::unique_ptr<const PackedFile> open() const;
  // Writes the matrices in the constructor's order, and makes the folder. Returns false if goes_on() returns false
  // before the end. Throws ModelError(MODEL_IO) if the file cannot be written, or must not be written yet: a model that
  // changed right before it was opened might change again without a visible change of its times.
  bool write(std::span<const Linear* const> matrices, const std::function<bool()>& goes_on) const;

 private:
  std::string folder_;
  std::string path_;
  std::string key_;
  std::vector<std::uint64_t> part_bytes_;
  std::string why_not_;  // why it must not be written; empty: it may be written
};

}  // namespace imp
