// A model file over one or several open files.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "files/model_file.h"

namespace imp {

class ShardedFile final : public ModelFile {
 public:
  // Each tensor's data lies within the shard that it names. A name that occurs twice is an error with the reason
  // `duplicate`.
  ShardedFile(std::string_view format, std::string path, std::vector<File> shards, Metadata metadata,
              std::vector<TensorInfo> tensors, Reason duplicate);

  std::string_view format() const noexcept override { return format_; }
  std::span<const std::shared_ptr<const File>> files() const noexcept override { return shards_; }
  void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const override;

  void warn(std::string warning) { warnings_.push_back(std::move(warning)); }

 private:
  std::string_view format_;  // a literal
  std::vector<std::shared_ptr<const File>> shards_;
};

}  // namespace imp
