// The packed weights of a model, kept in a file from one start to the next.
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
#include "model/weight_plan.h"

namespace imp {

// A matrix of the plan and how it is read.
struct PlacedMatrix {
  const PlannedWeight* weight = nullptr;
  RowOrder order = RowOrder::file;
  int index = 0;  // among the matrices that the tensor holds
};

// One file for a model's path and the layouts of its plan. What it was made of is its key: the versions of the model's
// files by size, times and inode; what scales of eight-bit weights are for; every matrix with its place, shape, type,
// order of rows and layout; the revision of the layouts. A file of another key, or one that is damaged, is not used,
// and the next write() takes its place.
class PackedCache {
 public:
  // `matrices` in the order of their parts. Throws nothing for a folder that cannot be: reading and writing do.
  PackedCache(const std::string& folder, const ModelFile& file, std::span<const PlacedMatrix> matrices, int head_dim);

  const std::string& path() const noexcept { return path_; }
  // Throws ModelError where there is none that can be used.
  std::unique_ptr<const PackedFile> open() const;
  // The matrices in the constructor's order. Makes the folder. Returns false where goes_on() says no before the end;
  // throws ModelError(MODEL_IO) where it cannot be written, or must not yet: a model that was changed in the moment
  // before it was opened might be changed again without its times showing it.
  bool write(std::span<const Linear* const> matrices, const std::function<bool()>& goes_on) const;

 private:
  std::string folder_;
  std::string path_;
  std::string key_;
  std::vector<std::uint64_t> part_bytes_;
  std::string why_not_;  // it must not be written; empty: it may
};

}  // namespace imp
