// Chooses the model file of a directory.
#pragma once

#include <string>

namespace imp {

// The path of the model in `directory`: the only GGUF file; or the safetensors index, else model.safetensors, else the
// only safetensors file. Looks only at names and opens no file. Throws MODEL_FORMAT if both formats exist, MODEL_SHARD
// if there are several safetensors files without an index or that name, and MODEL_MISSING if there is no model or there
// are several GGUF files.
std::string model_in_directory(const std::string& directory);

}  // namespace imp
