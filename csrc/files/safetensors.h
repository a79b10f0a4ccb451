// safetensors checkpoints: one file or a set with an index, with a config.json in the same directory. F8_E4M3 weights
// include their scales (files/float8_file.h).
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "files/model_file.h"

namespace imp {

// `file` is `path`, already open: a safetensors file. Its metadata is that of config.json in the same directory, then
// the header's own under `__metadata__.<key>`. Opens no other tensor file. Throws ModelError.
std::unique_ptr<ModelFile> open_safetensors(const std::string& path, File file, const PreadFunction& pread);

// The same for the index of a set. Its shards are in the same directory and must match the index exactly.
std::unique_ptr<ModelFile> open_safetensors_index(const std::string& path, File file, const PreadFunction& pread);

}  // namespace imp
