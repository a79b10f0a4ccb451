// The index of a sharded safetensors checkpoint: the file of each tensor.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/file.h"

namespace imp::safetensors {

struct Index {
  struct Entry {
    std::string tensor;
    std::size_t shard = 0;  // index into shards
  };
  std::vector<std::string> shards;  // file names as in the index, not validated yet; sorted, unique
  std::vector<Entry> entries;       // sorted by tensor, unique
};

// Errors are MODEL_SHARD or MODEL_LIMIT.
Index read_index(const File& file);

}  // namespace imp::safetensors
