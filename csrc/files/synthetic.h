// A checkpoint without a file, for benchmarks: real shapes, with random weights that are computed when they are read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "files/model_file.h"

namespace imp {

// Weights with a standard deviation of `deviation` around `mean`; only F32 tensors can have a mean.
struct SyntheticTensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> dims;  // dims[0] contiguous
  float mean = 0;
  float deviation = 0;
};

// Equal tensors give equal bytes on every machine. Throws InvalidArgument for an unsupported type, with the supported
// ones, and for a shape that does not fill blocks.
std::unique_ptr<ModelFile> make_synthetic_file(Metadata metadata, const std::vector<SyntheticTensor>& tensors);

}  // namespace imp
