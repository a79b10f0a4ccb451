// GGUF checkpoints: one file, or a set that llama.cpp's splitter made.
#pragma once

#include <memory>
#include <string>

#include "base/file.h"
#include "files/model_file.h"

namespace imp {

// Opens a GGUF file and, where it is the first of a set, the others beside it. Reads the metadata; the tensors' data
// stays in the file. A file without tensors opens: it may be a vocabulary. Throws ModelError, or ResourceExhausted
// where descriptors or memory are lacking.
std::unique_ptr<ModelFile> open_gguf(const std::string& path, const PreadFunction& pread = {});

// The same where `file` is path, opened already; `pread` is for the others of the set.
std::unique_ptr<ModelFile> open_gguf(const std::string& path, File file, const PreadFunction& pread);

}  // namespace imp
