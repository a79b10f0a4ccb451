// The part of a GGUF file before the tensors' data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "files/model_file.h"

namespace imp::gguf {

struct Header {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order; names may still repeat
  std::uint64_t data_end = 0;       // byte after the last tensor and its padding, or the end of the file
};

// Reads and checks everything except the data. Throws ModelError.
Header read_header(const File& file);

}  // namespace imp::gguf
