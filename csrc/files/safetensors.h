// safetensors checkpoints: one file or a set with an index, and the config.json beside it. Weights of F8_E4M3 come with
// their scales (files/float8_file.h).
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "files/model_file.h"

namespace imp {

// `file` is `path`, opened already: a safetensors file. Its metadata is that of config.json in the same directory,
// followed by the header's own under `__metadata__.<key>`. Opens no other file. Throws ModelError.
std::unique_ptr<ModelFile> open_safetensors(const std::string& path, File file, const PreadFunction& pread);

// The same where `file` is the index of a set. Its shards lie beside it and hold what the index says, no more, no less.
std::unique_ptr<ModelFile> open_safetensors_index(const std::string& path, File file, const PreadFunction& pread);

}  // namespace imp
