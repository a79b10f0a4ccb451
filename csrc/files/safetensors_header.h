// The header of one safetensors file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "files/model_file.h"

namespace imp::safetensors {

struct Header {
  // In the order of their data; names are unique. F8_E4M3 tensors are codes without scales, one byte per element.
  std::vector<TensorInfo> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Reads and checks everything except the data. Throws ModelError.
Header read_header(const File& file);

}  // namespace imp::safetensors
