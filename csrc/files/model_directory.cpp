// Chooses a file by its name.
#include "files/model_directory.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"

namespace imp {
namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json";
// Repositories often have the same weights in another form in the same folder, such as consolidated.safetensors.
constexpr std::string_view kSingle = "model.safetensors";

// Sorted, so that messages do not depend on the file system's order.
std::vector<std::string> names_ending_in(const std::vector<std::string>& names, std::string_view ending) {
  std::vector<std::string> found;
  std::ranges::copy_if(names, std::back_inserter(found), [&](const std::string& n) { return n.ends_with(ending); });
  return found;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator i(directory, error), end; !error && i != end; i.increment(error)) {
    names.push_back(i->path().filename().string());
  }
  if (error) {
    throw ModelError(error == std::errc::permission_denied ? Reason::MODEL_PERMISSION : Reason::MODEL_IO,
                     printable(file_name(directory), 255) + ": " + error.message() + ", expected a readable directory");
  }
  std::ranges::sort(names);
  return names;
}

bool is_projector_name(std::string_view name) {
  constexpr std::string_view kBegin = "mmproj";
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(name.substr(0, kBegin.size()), kBegin, {}, lower);
}

void refuse_pytorch(const std::string& where, const std::vector<std::string>& names) {
  const auto found = std::ranges::find_if(names, is_pytorch_name);
  if (found == names.end()) return;
  throw ModelError(Reason::MODEL_FORMAT, where + "has PyTorch's " + printable(*found) +
                                             ", expected safetensors or GGUF: " + std::string(kPytorchConversion));
}

}  // namespace

bool is_pytorch_name(std::string_view name) {
  return name.ends_with(".pth") || (name.starts_with("pytorch_model") && name.ends_with(".bin"));
}

std::string model_in_directory(const std::string& directory) {
  const std::string where = printable(file_name(directory), 255) + ": ";
  const std::vector<std::string> names = names_in(directory);
  std::vector<std::string> gguf = names_ending_in(names, ".gguf");
  const std::vector<std::string> safetensors = names_ending_in(names, ".safetensors");
  const bool index = std::ranges::binary_search(names, kIndex);
  const bool single = std::ranges::binary_search(names, kSingle);
  const bool has_model = index || !safetensors.empty() || !std::ranges::all_of(gguf, is_projector_name);
  if (has_model) std::erase_if(gguf, is_projector_name);
  const auto at = [&](std::string_view name) { return (std::filesystem::path(directory) / name).string(); };
  if (!gguf.empty() && (index || !safetensors.empty())) {
    throw ModelError(Reason::MODEL_FORMAT, where + "has a GGUF and a safetensors model, name one of " +
                                               printable(gguf.front()) + " and " +
                                               (index ? std::string(kIndex) : printable(safetensors.front())));
  }
  if (gguf.size() == 1) return at(gguf.front());
  if (!gguf.empty()) {
    throw ModelError(Reason::MODEL_MISSING, where + "is a directory of " + std::to_string(gguf.size()) +
                                                " GGUF files, expected the name of one, such as " +
                                                printable(gguf.front()));
  }
  if (!index && safetensors.empty()) {
    refuse_pytorch(where, names);
    throw ModelError(Reason::MODEL_MISSING,
                     where + "is a directory without a model, expected safetensors files or one GGUF file");
  }
  if (index) return at(kIndex);
  if (single) return at(kSingle);
  if (safetensors.size() > 1) {
    throw ModelError(Reason::MODEL_SHARD, where + std::to_string(safetensors.size()) + " safetensors files, expected " +
                                              std::string(kIndex) + " or " + std::string(kSingle) + " with them");
  }
  return at(safetensors.front());
}

}  // namespace imp
