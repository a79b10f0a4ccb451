// What stands before the tensors' data in one GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "files/model_file.h"

namespace imp::gguf {

struct Header {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order; names not yet known to be unique
  std::uint64_t data_end = 0;       // byte after the last tensor and its padding, or the end of the file
};

// Reads and checks everything but the data; throws ModelError.
Header read_header(const File& file);

}  // namespace imp::gguf
