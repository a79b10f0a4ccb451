// Which file of a directory is the model.
#pragma once

#include <string>

namespace imp {

// The path of the model in `directory`: the only GGUF file; or the index of safetensors files, else model.safetensors,
// else the only safetensors file. Looks at names alone and opens no file. Throws MODEL_FORMAT if there are both
// formats, MODEL_SHARD if there are several safetensors files without an index and none has that name, and
// MODEL_MISSING if there is no model or there are several GGUF files.
std::string model_in_directory(const std::string& directory);

}  // namespace imp
