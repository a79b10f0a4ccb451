// Resolves a shard's name to a path inside the model's directory.
#include "files/shard_path.h"

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"

namespace imp {
namespace {

namespace fs = std::filesystem;

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

}  // namespace

std::string shard_path(const std::string& first_path, std::string_view name, std::string_view folder) {
  const std::string where = printable(file_name(first_path), 255) + ": shard \"" + printable(name, 255) + "\": ";
  if (!is_plain_name(name) || !(folder.empty() || is_plain_name(folder)))
    throw ModelError(Reason::MODEL_SHARD, where + "is a path, expected a file name");
  std::error_code error;
  const fs::path of_model = fs::canonical(fs::absolute(first_path, error).parent_path(), error);
  const fs::path first_directory = error ? fs::path() : fs::canonical(first_path, error).parent_path();
  if (error) throw ModelError(Reason::MODEL_MISSING, where + "the model's directory: " + error.message());
  const fs::path directory = folder.empty() ? of_model : of_model / folder;
  const fs::path shard = fs::canonical(directory / name, error);
  if (error)
    throw ModelError(Reason::MODEL_SHARD, where + error.message() + ", expected it in the directory of the first file");
  if (shard.parent_path() != directory && shard.parent_path() != first_directory) {
    throw ModelError(Reason::MODEL_SHARD, where + "is a link out of the model's directory");
  }
  return shard.string();
}

}  // namespace imp
