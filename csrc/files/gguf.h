// GGUF checkpoints: one file, or a set made by llama.cpp's splitter.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "files/model_file.h"

namespace imp {

// Opens a GGUF file, and if it is the first of a set, the other files in the same directory. Reads the metadata only. A
// file without tensors opens too: it may be a vocabulary. Throws ModelError, or ResourceExhausted if descriptors or
// memory are lacking.
std::unique_ptr<ModelFile> open_gguf(const std::string& path, const PreadFunction& pread = {});

// The same for an open `file` at `path`. `pread` is for the other files of the set.
std::unique_ptr<ModelFile> open_gguf(const std::string& path, File file, const PreadFunction& pread);

}  // namespace imp
