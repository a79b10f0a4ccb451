// Which file of a directory is the model.
#pragma once

#include <string>

namespace imp {

// The path of the safetensors file or index in `directory`, by the names there; opens none of them. Throws MODEL_FORMAT
// where there is a GGUF file too, MODEL_SHARD where several safetensors files have no index, and MODEL_MISSING where
// there is no model or only GGUF files: those have a file name of their own to give.
std::string model_in_directory(const std::string& directory);

}  // namespace imp
