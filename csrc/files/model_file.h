// A checkpoint on disk, whatever its format: its metadata, its table of tensors, and their bytes on demand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "files/metadata.h"
#include "tensor/dtype.h"

namespace imp {

constexpr int kMaxTensorRank = 8;

struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  // dims[0] is the contiguous dimension (GGUF's order; safetensors' shape reversed); 1 beyond n_dims.
  std::array<std::int64_t, kMaxTensorRank> dims{1, 1, 1, 1, 1, 1, 1, 1};
  int n_dims = 0;
  std::uint32_t shard = 0;        // which file of the set
  std::uint64_t file_offset = 0;  // of the first byte, in that file
  std::uint64_t n_bytes = 0;

  std::int64_t n_elements() const noexcept {
    std::int64_t product = 1;
    for (const std::int64_t dim : dims) product *= dim;
    return product;
  }
};

// "[4096, 1024]", dims[0] first.
std::string shape_text(const TensorInfo& tensor);

// Immutable once open: every method may be called from any thread. The tensors' names are unique, their sizes follow
// from type and shape, and their bytes lie inside the file without overlap. Nothing is mapped.
class ModelFile {
 public:
  virtual ~ModelFile() = default;

  virtual std::string_view format() const noexcept = 0;  // "gguf", "safetensors"
  const std::string& path() const noexcept { return path_; }
  std::string name() const;  // the path's last component, fit for a message
  const Metadata& metadata() const noexcept { return metadata_; }
  // In file order.
  std::span<const TensorInfo> tensors() const noexcept { return tensors_; }
  const TensorInfo* find(std::string_view name) const noexcept;
  // What is odd about the file but no reason to refuse it, one sentence each.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  // The open files of the set, in the order of TensorInfo::shard, which is that of their names; empty if the model is
  // not in files. A file stays open while somebody holds a pointer to it.
  virtual std::span<const std::shared_ptr<const File>> files() const noexcept = 0;
  // The versions of these files at the time of opening.
  std::vector<FileStamp> stamps() const;

  // Copies out.size() bytes of a tensor of this file, from byte `offset` of it on. Throws MODEL_IO where reading
  // fails, or where the file is no longer the one that was opened.
  virtual void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const = 0;

 protected:
  ModelFile(std::string path, Metadata metadata) : path_(std::move(path)), metadata_(std::move(metadata)) {}
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  // Makes find() know the tensors; returns the name that occurs twice, or nullptr.
  const std::string* index_tensors(std::vector<TensorInfo> tensors);

  std::string path_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> warnings_;

 private:
  std::vector<std::uint32_t> by_name_;  // indices into tensors_, ordered by name
};

}  // namespace imp
