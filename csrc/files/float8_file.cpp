// Finds the scales of each tensor, and interleaves them with the codes when they are read: one before each 64 codes.
#include "files/float8_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "base/ceil_div.h"
#include "base/error.h"
#include "base/printable.h"
#include "files/float8_scheme.h"
#include "tensor/quant/f8_e4m3.h"

namespace imp {
namespace {

using quant::BlockF8_E4M3;
constexpr std::uint64_t kCodes = BlockF8_E4M3::kElements, kBlockBytes = sizeof(BlockF8_E4M3);

// The scales of a matrix, one per tile of rows and columns; the last tiles may be cut off.
struct Scales {
  std::int64_t piece_rows = 1, piece_columns = 1;
  std::int64_t n_columns = 1;  // of scales
  std::vector<float> values;

  float scale_of(std::int64_t row, std::int64_t column) const noexcept {
    return values[static_cast<std::size_t>(row / piece_rows * n_columns + column / piece_columns)];
  }
};

[[noreturn]] void refuse(const ModelFile& file, Reason reason, std::string_view tensor, const std::string& found,
                         const std::string& expected) {
  throw ModelError(reason,
                   file.name() + ": tensor " + printable(tensor, 128) + ": " + found + ", expected " + expected);
}

// The scales for a tensor of this shape.
Scales arrange(const ModelFile& file, const TensorInfo& scales, const TensorInfo& codes, const Float8Scheme& scheme) {
  const std::int64_t k = codes.dims[0], n = codes.dims[1];
  const std::int64_t wide = scales.dims[0], high = scales.dims[1];
  const auto fits = [&](std::int64_t columns, std::int64_t rows) { return wide == columns && high == rows; };
  if (scales.n_dims <= 2) {
    if (scheme.block_rows > 0) {
      const std::int64_t columns = ceil_div(k, scheme.block_columns);
      if (fits(columns, ceil_div(n, scheme.block_rows))) return {scheme.block_rows, scheme.block_columns, columns, {}};
    }
    if (fits(1, 1)) return {.piece_rows = n, .piece_columns = k, .values = {}};
    if (fits(1, n) || (scales.n_dims == 1 && wide == n)) return {.piece_rows = 1, .piece_columns = k, .values = {}};
  }
  std::string expected = "[1], [1, " + std::to_string(n) + "]";
  if (scheme.block_rows > 0) {
    expected += ", [" + std::to_string(ceil_div(k, scheme.block_columns)) + ", " +
                std::to_string(ceil_div(n, scheme.block_rows)) + "]";
  }
  refuse(file, Reason::MODEL_SHAPE, scales.name, "shape " + shape_text(scales),
         "one of " + expected + " for codes of shape " + shape_text(codes));
}

void read_values(const ModelFile& file, const TensorInfo& tensor, std::vector<float>& values) {
  if (tensor.dtype != DType::F32 && tensor.dtype != DType::BF16 && tensor.dtype != DType::F16) {
    refuse(file, Reason::MODEL_TENSOR, tensor.name, "type " + std::string(traits(tensor.dtype).name),
           "one of f32, f16, bf16");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.n_bytes));
  file.read(tensor, 0, bytes);
  values.resize(static_cast<std::size_t>(tensor.n_elements()));
  traits(tensor.dtype).dequantize(bytes.data(), values.data(), tensor.n_elements());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string found = "element " + std::to_string(i) + " is ";
    if (!std::isfinite(values[i])) {
      refuse(file, Reason::MODEL_NONFINITE, tensor.name, found + (std::isnan(values[i]) ? "NaN" : "infinite"),
             "a finite scale");
    }
    const float size = std::fabs(values[i]);
    if (size != 0 && (size < quant::kMinF8Scale || size >= quant::kF8ScaleLimit)) {
      refuse(file, Reason::MODEL_VALUE, tensor.name, found + "too " + (size < 1 ? "small" : "large"),
             "0 or a scale from 2^-100 to below 2^100");
    }
  }
}

// Suffixes of the scales of activations and of the cache.
bool is_without_effect(std::string_view name) {
  constexpr std::array<std::string_view, 9> kEnds = {".input_scale",      ".input_scale_ub", ".act_scale",
                                                     ".activation_scale", ".output_scale",   ".q_scale",
                                                     ".k_scale",          ".v_scale",        ".kv_scale"};
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

class Float8File final : public ModelFile {
 public:
  explicit Float8File(std::unique_ptr<ModelFile> file)
      : ModelFile(file->path(), file->metadata()), file_(std::move(file)) {
    warnings_ = file_->warnings();
    const Float8Scheme scheme = float8_scheme(metadata()).value_or(Float8Scheme{});
    std::set<std::string_view> read;  // names in file_
    for (const TensorInfo& tensor : file_->tensors()) {
      if (tensor.dtype == DType::F8_E4M3) read.insert(scales_of(tensor).name);
    }
    std::vector<TensorInfo> tensors;
    for (const TensorInfo& tensor : file_->tensors()) {
      if (read.contains(tensor.name) || is_without_effect(tensor.name)) continue;
      const bool has_scales = tensor.dtype == DType::F8_E4M3;
      tensors.push_back(tensor);
      parts_.push_back({&tensor, has_scales ? find_scales(tensor, scheme) : Scales{}});
      if (has_scales) tensors.back().n_bytes = tensor.n_bytes / kCodes * kBlockBytes;
    }
    IMP_CHECK(index_tensors(std::move(tensors)) == nullptr);
  }

  std::string_view format() const noexcept override { return file_->format(); }
  std::span<const std::shared_ptr<const File>> files() const noexcept override { return file_->files(); }

  void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const override {
    const auto index = static_cast<std::size_t>(&tensor - tensors().data());
    IMP_CHECK(index < parts_.size() && offset <= tensor.n_bytes && out.size() <= tensor.n_bytes - offset);
    if (tensor.dtype != DType::F8_E4M3) return file_->read(*parts_[index].tensor, offset, out);
    const std::uint64_t first = offset / kBlockBytes, skipped = offset % kBlockBytes;
    const std::uint64_t n_blocks = ceil_div(skipped + out.size(), kBlockBytes);
    if (out.size() == n_blocks * kBlockBytes) return read_blocks(parts_[index], first, out);
    std::vector<std::byte> whole(n_blocks * kBlockBytes);
    read_blocks(parts_[index], first, whole);
    std::memcpy(out.data(), whole.data() + skipped, out.size());
  }

 private:
  struct Part {
    const TensorInfo* tensor;  // in file_
    Scales scales;             // of codes
  };

  const TensorInfo& scales_of(const TensorInfo& codes) const {
    const TensorInfo* const plain = file_->find(codes.name + "_scale");
    const TensorInfo* const inverse = file_->find(codes.name + "_scale_inv");
    if (plain && inverse)
      refuse(*this, Reason::MODEL_TENSOR, plain->name, "exists together with " + inverse->name, "one of them");
    if (!plain && !inverse) {
      refuse(*this, Reason::MODEL_TENSOR, codes.name + "_scale",
             "missing, and so is " + printable(codes.name, 128) + "_scale_inv", "the scales of weights of F8_E4M3");
    }
    return plain ? *plain : *inverse;
  }

  Scales find_scales(const TensorInfo& codes, const Float8Scheme& scheme) const {
    const TensorInfo& tensor = scales_of(codes);
    if (codes.n_dims != 2 || codes.dims[0] < 1 || codes.dims[1] < 1 || codes.dims[0] % BlockF8_E4M3::kElements != 0) {
      refuse(*this, Reason::MODEL_SHAPE, codes.name, "shape " + shape_text(codes) + " of F8_E4M3",
             "a matrix with rows of a multiple of " + std::to_string(BlockF8_E4M3::kElements));
    }
    Scales scales = arrange(*this, tensor, codes, scheme);
    read_values(*file_, tensor, scales.values);
    return scales;
  }

  // Reads the codes into the end of `out` and builds blocks from its front. No block overwrites codes that are still
  // needed.
  void read_blocks(const Part& part, std::uint64_t first, std::span<std::byte> out) const {
    const std::uint64_t n_blocks = out.size() / kBlockBytes;
    const std::span<std::byte> codes = out.subspan(n_blocks * (kBlockBytes - kCodes));
    file_->read(*part.tensor, first * kCodes, codes);
    const auto blocks_of_row = static_cast<std::uint64_t>(part.tensor->dims[0]) / kCodes;
    for (std::uint64_t i = 0; i < n_blocks; ++i) {
      const std::uint64_t block = first + i;
      const float scale = part.scales.scale_of(static_cast<std::int64_t>(block / blocks_of_row),
                                               static_cast<std::int64_t>(block % blocks_of_row * kCodes));
      std::byte* const to = out.data() + i * kBlockBytes;
      std::memmove(to + sizeof scale, codes.data() + i * kCodes, kCodes);
      std::memcpy(to, &scale, sizeof scale);
      check_codes(*part.tensor, block * kCodes, std::span<const std::byte, kCodes>(to + sizeof scale, kCodes));
    }
  }

  void check_codes(const TensorInfo& tensor, std::uint64_t first_element,
                   std::span<const std::byte, kCodes> codes) const {
    constexpr std::byte kNan{0x7F};
    bool has_nan = false;
    for (const std::byte code : codes) has_nan |= (code & kNan) == kNan;
    if (!has_nan) return;
    const auto bad = std::ranges::find_if(codes, [](std::byte code) { return (code & kNan) == kNan; });
    refuse(*this, Reason::MODEL_NONFINITE, tensor.name,
           "element " + std::to_string(first_element + static_cast<std::uint64_t>(bad - codes.begin())) + " is NaN",
           "finite weights");
  }

  std::unique_ptr<ModelFile> file_;
  std::vector<Part> parts_;  // of the tensors, in order
};

}  // namespace

std::unique_ptr<ModelFile> with_float8_scales(std::unique_ptr<ModelFile> file) {
  const auto is_float8 = [](const TensorInfo& tensor) { return tensor.dtype == DType::F8_E4M3; };
  if (!std::ranges::any_of(file->tensors(), is_float8)) return file;
  return std::make_unique<Float8File>(std::move(file));
}

}  // namespace imp
