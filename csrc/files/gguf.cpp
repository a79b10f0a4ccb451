// Opens a GGUF file or set.
#include "files/gguf.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "files/gguf_header.h"
#include "files/gguf_split.h"
#include "files/shard_path.h"
#include "files/sharded_file.h"

namespace imp {
namespace {

// Opens the files of a set one after the other.
struct Set {
  std::vector<File> files;
  std::vector<TensorInfo> tensors;
  std::vector<std::string> warnings;

  Metadata add(File file) {
    gguf::Header header = gguf::read_header(file);
    for (TensorInfo& tensor : header.tensors) {
      tensor.shard = static_cast<std::uint32_t>(files.size());
      tensors.push_back(std::move(tensor));
    }
    if (const std::uint64_t extra = file.size_bytes() - header.data_end; extra > 0) {
      warnings.push_back(file.name() + ": " + std::to_string(extra) + " bytes after the last tensor are not read");
    }
    files.push_back(std::move(file));
    return std::move(header.metadata);
  }
};

}  // namespace

std::unique_ptr<ModelFile> open_gguf(const std::string& path, const PreadFunction& pread) {
  return open_gguf(path, File(path, pread), pread);
}

std::unique_ptr<ModelFile> open_gguf(const std::string& path, File file, const PreadFunction& pread) {
  Set set;
  Metadata metadata = set.add(std::move(file));
  const gguf::Split split = gguf::read_split(metadata, 0);
  for (std::uint64_t number = 1; number < split.n_shards; ++number) {
    const std::string name = gguf::shard_name(file_name(path), number, split.n_shards);
    const Metadata shard = set.add(File(shard_path(path, name), pread, Links::REFUSE));
    gguf::read_split(shard, number);
    gguf::check_same_model(metadata, shard);
  }
  if (split.n_shards > 1 && set.tensors.size() != split.n_tensors) {
    throw ModelError(Reason::MODEL_SHARD, metadata.where() + ": the shards have " + std::to_string(set.tensors.size()) +
                                              " tensors, expected " + std::to_string(split.n_tensors));
  }
  const Reason duplicate = split.n_shards > 1 ? Reason::MODEL_SHARD : Reason::MODEL_DUPLICATE;
  auto model = std::make_unique<ShardedFile>("gguf", path, std::move(set.files), std::move(metadata),
                                             std::move(set.tensors), duplicate);
  for (std::string& warning : set.warnings) model->warn(std::move(warning));
  return model;
}

}  // namespace imp
