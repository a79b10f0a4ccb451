// Finds the pairs of tensors, and builds blocks of both when they are read.
#include "files/mxfp4_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/printable.h"
#include "tensor/quant/mxfp4.h"

namespace imp {
namespace {

using quant::BlockMXFP4;
constexpr std::uint64_t kLevelBytes = sizeof(BlockMXFP4::quants), kMxfp4Bytes = sizeof(BlockMXFP4);
constexpr std::string_view kLevels = "_blocks", kExponents = "_scales";

std::string_view without_end(std::string_view name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

// Levels lie in pairs in the checkpoint: byte i has those of weights 2i, in the low half, and 2i + 1.
void build_block(std::byte exponent, const std::byte* pairs, std::byte* block) {
  std::array<std::uint8_t, BlockMXFP4::kElements> levels;
  for (std::size_t i = 0; i < kLevelBytes; ++i) {
    const auto pair = std::to_integer<unsigned>(pairs[i]);
    levels[2 * i] = static_cast<std::uint8_t>(pair & 0xFU);
    levels[2 * i + 1] = static_cast<std::uint8_t>(pair >> 4);
  }
  block[0] = exponent;
  for (std::size_t i = 0; i < kLevelBytes; ++i) {
    block[1 + i] = static_cast<std::byte>(levels[i] | levels[i + kLevelBytes] << 4);
  }
}

class Mxfp4File final : public ModelFile {
 public:
  explicit Mxfp4File(std::unique_ptr<ModelFile> file)
      : ModelFile(file->path(), file->metadata()), file_(std::move(file)) {
    warnings_ = file_->warnings();
    std::vector<TensorInfo> tensors;
    for (const TensorInfo& tensor : file_->tensors()) {
      if (tensor.dtype != DType::MXFP4) {
        tensors.push_back(tensor);
        parts_.push_back({&tensor, nullptr});
      } else if (tensor.name.ends_with(kLevels)) {
        const TensorInfo& exponents = partner(tensor, kLevels, kExponents);
        tensors.push_back(combined(tensor, exponents));
        parts_.push_back({&tensor, &exponents});
      } else {
        partner(tensor, kExponents, kLevels);
      }
    }
    if (const std::string* name = index_tensors(std::move(tensors))) {
      fail(Reason::MODEL_DUPLICATE, *name, "exists together with " + *name + std::string(kLevels), "one of them");
    }
  }

  std::string_view format() const noexcept override { return file_->format(); }
  std::span<const std::shared_ptr<const File>> files() const noexcept override { return file_->files(); }

  void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const override {
    const auto index = static_cast<std::size_t>(&tensor - tensors().data());
    IMP_CHECK(index < parts_.size() && offset <= tensor.n_bytes && out.size() <= tensor.n_bytes - offset);
    const Part& part = parts_[index];
    if (part.exponents == nullptr) return file_->read(*part.tensor, offset, out);
    const std::uint64_t first = offset / kMxfp4Bytes, skipped = offset % kMxfp4Bytes;
    const std::uint64_t n_blocks = ceil_div(skipped + out.size(), kMxfp4Bytes);
    if (out.size() == n_blocks * kMxfp4Bytes) return read_blocks(part, first, out);
    std::vector<std::byte> whole(n_blocks * kMxfp4Bytes);
    read_blocks(part, first, whole);
    std::memcpy(out.data(), whole.data() + skipped, out.size());
  }

 private:
  [[noreturn]] void fail(Reason reason, std::string_view tensor, const std::string& found,
                         const std::string& expected) const {
    throw ModelError(reason, name() + ": tensor " + printable(tensor, 128) + ": " + found + ", expected " + expected);
  }

  struct Part {
    const TensorInfo* tensor;     // in file_
    const TensorInfo* exponents;  // in file_; null: the tensor is no part
  };

  const TensorInfo& partner(const TensorInfo& tensor, std::string_view end, std::string_view other_end) const {
    const std::string name = std::string(without_end(tensor.name, end)) + std::string(other_end);
    const TensorInfo* const found = file_->find(name);
    if (!found || found->dtype != DType::MXFP4) {
      fail(Reason::MODEL_TENSOR, name, found ? "another type than U8" : "missing",
           "a tensor of U8, as " + printable(tensor.name, 128) + " is one");
    }
    return *found;
  }

  // [16, blocks in a row, rows, ...] and [blocks in a row, rows, ...] become [32 · blocks in a row, rows, ...].
  TensorInfo combined(const TensorInfo& levels, const TensorInfo& exponents) const {
    const bool fits = levels.n_dims >= 2 && levels.dims[0] == static_cast<std::int64_t>(kLevelBytes) &&
                      std::equal(levels.dims.begin() + 1, levels.dims.end(), exponents.dims.begin());
    if (!fits) {
      fail(Reason::MODEL_SHAPE, levels.name, "shape " + shape_text(levels),
           "16 bytes for each of the exponents of shape " + shape_text(exponents));
    }
    TensorInfo tensor = levels;
    tensor.name = without_end(levels.name, kLevels);
    tensor.dims = exponents.dims;
    tensor.dims[0] *= BlockMXFP4::kElements;
    tensor.n_dims = exponents.n_dims;
    tensor.n_bytes = exponents.n_bytes * kMxfp4Bytes;
    return tensor;
  }

  void read_blocks(const Part& part, std::uint64_t first, std::span<std::byte> out) const {
    const std::uint64_t n_blocks = out.size() / kMxfp4Bytes;
    std::vector<std::byte> bytes(n_blocks * kMxfp4Bytes);
    const std::span<std::byte> exponents = std::span(bytes).first(n_blocks),
                               levels = std::span(bytes).subspan(n_blocks);
    file_->read(*part.exponents, first, exponents);
    file_->read(*part.tensor, first * kLevelBytes, levels);
    constexpr std::byte kNan{0xFF};
    for (std::uint64_t i = 0; i < n_blocks; ++i) {
      if (exponents[i] == kNan) {
        fail(Reason::MODEL_NONFINITE, part.exponents->name, "element " + std::to_string(first + i) + " is NaN",
             "finite scales");
      }
      build_block(exponents[i], levels.data() + i * kLevelBytes, out.data() + i * kMxfp4Bytes);
    }
  }

  std::unique_ptr<ModelFile> file_;
  std::vector<Part> parts_;  // of the tensors, in order
};

}  // namespace

bool is_part_of_mxfp4(std::string_view name) noexcept {
  return name.ends_with(kLevels) || name.ends_with(kExponents);
}

std::unique_ptr<ModelFile> with_mxfp4_scales(std::unique_ptr<ModelFile> file) {
  const auto is_part = [](const TensorInfo& tensor) { return tensor.dtype == DType::MXFP4; };
  if (!std::ranges::any_of(file->tensors(), is_part)) return file;
  return std::make_unique<Mxfp4File>(std::move(file));
}

}  // namespace imp
