// Where the other files of a set may lie: beside the first, and nowhere else.
#pragma once

#include <string>
#include <string_view>

namespace imp {

// The real path of the file `name` in the directory of `first_path`. `name` comes from a checkpoint: refuses anything
// but a plain file name, and a symbolic link that leaves both the directory of first_path and the one where the first
// file really lies (a download cache keeps a set as links into one directory). Throws MODEL_SHARD; opens nothing.
std::string shard_path(const std::string& first_path, std::string_view name);

}  // namespace imp
