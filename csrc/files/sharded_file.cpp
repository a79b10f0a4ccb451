// Reads from a tensor's shard, and checks that the file is unchanged.
#include "files/sharded_file.h"

namespace imp {

ShardedFile::ShardedFile(std::string_view format, std::string path, std::vector<File> shards, Metadata metadata,
                         std::vector<TensorInfo> tensors, Reason duplicate)
    : ModelFile(std::move(path), std::move(metadata)), format_(format) {
  for (File& shard : shards) shards_.push_back(std::make_shared<const File>(std::move(shard)));
  if (const std::string* name = index_tensors(std::move(tensors))) {
    throw ModelError(duplicate, this->name() + ": tensor " + *name + ": occurs twice, expected once");
  }
}

void ShardedFile::read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const {
  IMP_CHECK(tensor.shard < shards_.size());
  IMP_CHECK(offset <= tensor.n_bytes && out.size() <= tensor.n_bytes - offset);
  const File& file = *shards_[tensor.shard];
  file.read_at(tensor.file_offset + offset, out);
  file.check_unchanged();
}

}  // namespace imp
