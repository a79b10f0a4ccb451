// Opens a checkpoint of any format imp reads, known by its content.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "files/model_file.h"

namespace imp {

// Throws ModelError: MODEL_FORMAT says what else the file looks like, MODEL_TENSOR that it has no tensors.
std::unique_ptr<ModelFile> open_model_file(const std::string& path, const PreadFunction& pread = {});

}  // namespace imp
