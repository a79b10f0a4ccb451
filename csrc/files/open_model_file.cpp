// Looks at the first bytes and hands the file to its format's reader.
#include "files/open_model_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "files/file_kind.h"
#include "files/gguf.h"

namespace imp {
namespace {

FileGuess guess_file(const File& file) {
  std::array<std::byte, kGuessBytes> begin;
  const auto read = std::span(begin).first(std::min<std::uint64_t>(begin.size(), file.size_bytes()));
  if (read.size() < 8) {
    throw ModelError(Reason::MODEL_TRUNCATED,
                     file.name() + ": has " + std::to_string(read.size()) + " bytes, expected a model file");
  }
  file.read_at(0, read);
  const FileGuess guess = guess_kind(read);
  if (guess.kind == FileKind::OTHER) {
    throw ModelError(Reason::MODEL_FORMAT,
                     file.name() + ": looks like " + std::string(guess.description) + ", expected GGUF or safetensors");
  }
  return guess;
}

}  // namespace

std::unique_ptr<ModelFile> open_model_file(const std::string& path, const PreadFunction& pread) {
  File file(path, pread);
  guess_file(file);
  std::unique_ptr<ModelFile> model = open_gguf(path, std::move(file), pread);
  if (model->tensors().empty()) {
    throw ModelError(Reason::MODEL_TENSOR, model->metadata().where() + ": has 0 tensors, expected a model's");
  }
  return model;
}

}  // namespace imp
