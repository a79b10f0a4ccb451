// A checkpoint on disk in any format: metadata, tensor table, and tensor bytes on demand.
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
  // dims[0] is the contiguous dimension (GGUF's order, the reverse of safetensors'); 1 beyond n_dims.
  std::array<std::int64_t, kMaxTensorRank> dims{1, 1, 1, 1, 1, 1, 1, 1};
  int n_dims = 0;
  std::uint32_t shard = 0;        // file of the set
  std::uint64_t file_offset = 0;  // of the first byte in that file
  std::uint64_t n_bytes = 0;
  // For tensors of integers, which are not weights: bytes per element, and `dtype` is unused. 0 for all other tensors.
  int integer_bytes = 0;

  std::int64_t n_elements() const noexcept {
    std::int64_t product = 1;
    for (const std::int64_t dim : dims) product *= dim;
    return product;
  }
};

// "[4096, 1024]", dims[0] first.
std::string shape_text(const TensorInfo& tensor);

// Immutable once open: any thread may call any method. Tensor names are unique, sizes follow from type and shape, and
// the bytes lie inside the file without overlap. Nothing is mapped.
class ModelFile {
 public:
  virtual ~ModelFile() = default;

  virtual std::string_view format() const noexcept = 0;  // "gguf", "safetensors"
  const std::string& path() const noexcept { return path_; }
  std::string name() const;  // the path's last component, safe for a message
  const Metadata& metadata() const noexcept { return metadata_; }
  // In file order.
  std::span<const TensorInfo> tensors() const noexcept { return tensors_; }
  const TensorInfo* find(std::string_view name) const noexcept;
  // Oddities that are not errors, one sentence each.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  // The open files of the set in the order of TensorInfo::shard, which is that of their names. Empty if the model has
  // no files. A file stays open while someone holds a pointer to it.
  virtual std::span<const std::shared_ptr<const File>> files() const noexcept = 0;
  // The versions of these files at the time of opening.
  std::vector<FileStamp> stamps() const;

  // Copies out.size() bytes of a tensor from its byte `offset` on. Throws MODEL_IO if reading fails or the file has
  // changed since it was opened.
  virtual void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const = 0;

 protected:
  ModelFile(std::string path, Metadata metadata) : path_(std::move(path)), metadata_(std::move(metadata)) {}
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  // Sorts the names for find(). Returns a name that occurs twice, or nullptr.
  const std::string* index_tensors(std::vector<TensorInfo> tensors);

  std::string path_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> warnings_;

 private:
  std::vector<std::uint32_t> by_name_;  // indices into tensors_, ordered by name
};

}  // namespace imp
