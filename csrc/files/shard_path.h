// Paths of the other files of a set: only the directory of the first file is allowed.
#pragma once

#include <string>
#include <string_view>

namespace imp {

// The real path of the file `name` in the directory of `first_path`. `name` comes from a checkpoint: only a plain file
// name is allowed. A symbolic link may lead into the directory of first_path or into that of the file to which
// first_path links: a download cache keeps a set as links into one directory. `folder`: the file is in the folder of
// this plain name there. Throws MODEL_SHARD; opens nothing.
std::string shard_path(const std::string& first_path, std::string_view name, std::string_view folder = "");

}  // namespace imp
