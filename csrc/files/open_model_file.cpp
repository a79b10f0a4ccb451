// Detects the format from the first bytes, and opens the file with its reader.
#include "files/open_model_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "files/file_kind.h"
#include "files/gguf.h"
#include "files/model_directory.h"
#include "files/safetensors.h"

namespace imp {
namespace {

[[noreturn]] void refuse_format(const File& file, const FileGuess& guess) {
  const std::string hint = is_pytorch_name(file.name()) ? ": " + std::string(kPytorchConversion) : "";
  throw ModelError(Reason::MODEL_FORMAT, file.name() + ": looks like " + std::string(guess.description) +
                                             ", expected GGUF or safetensors" + hint);
}

FileGuess guess_file(const File& file) {
  std::array<std::byte, kGuessBytes> begin;
  const auto read = std::span(begin).first(std::min<std::uint64_t>(begin.size(), file.size_bytes()));
  if (read.size() < 8) {
    throw ModelError(Reason::MODEL_TRUNCATED,
                     file.name() + ": has " + std::to_string(read.size()) + " bytes, expected a model file");
  }
  file.read_at(0, read);
  return guess_kind(read);
}

std::unique_ptr<ModelFile> open_by_kind(const std::string& path, const PreadFunction& pread) {
  File file(path, pread);
  const FileGuess guess = guess_file(file);
  if (guess.kind == FileKind::GGUF) return open_gguf(path, std::move(file), pread);
  // Without GGUF's magic, the file name decides which reader reports the error.
  if (path.ends_with(".gguf")) refuse_format(file, guess);
  if (guess.kind == FileKind::JSON && path.ends_with(".safetensors.index.json")) {
    return open_safetensors_index(path, std::move(file), pread);
  }
  if (guess.kind == FileKind::SAFETENSORS || (guess.kind == FileKind::UNKNOWN && path.ends_with(".safetensors"))) {
    return open_safetensors(path, std::move(file), pread);
  }
  refuse_format(file, guess);
}

}  // namespace

std::unique_ptr<ModelFile> open_model_file(const std::string& path, const PreadFunction& pread) {
  std::error_code error;  // on error File reports the reason
  const bool directory = std::filesystem::is_directory(path, error);
  std::unique_ptr<ModelFile> model = open_by_kind(directory ? model_in_directory(path) : path, pread);
  if (model->tensors().empty()) {
    throw ModelError(Reason::MODEL_TENSOR, model->name() + ": has 0 tensors, expected the tensors of a model");
  }
  return model;
}

}  // namespace imp
