// Opens a checkpoint of any supported format, detected from its content.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "files/model_file.h"

namespace imp {

// Throws ModelError: MODEL_FORMAT with the apparent format, or MODEL_TENSOR if it has no tensors.
std::unique_ptr<ModelFile> open_model_file(const std::string& path, const PreadFunction& pread = {});

}  // namespace imp
