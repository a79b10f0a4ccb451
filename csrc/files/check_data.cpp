// Reads tensors in parts of whole blocks.
#include "files/check_data.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/printable.h"

namespace imp {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

// Decodes block by block. The first block begins with element `first_element` of the tensor.
void check_finite(const ModelFile& model, const TensorInfo& tensor, std::span<const std::byte> blocks,
                  std::int64_t first_element) {
  const DTypeTraits& type = traits(tensor.dtype);
  const std::int64_t n_blocks = static_cast<std::int64_t>(blocks.size()) / type.block_bytes;
  constexpr std::int64_t kMaxBlocks = 16;
  std::vector<float> values(static_cast<std::size_t>(kMaxBlocks * type.block_elements));
  for (std::int64_t block = 0; block < n_blocks; block += kMaxBlocks) {
    const std::int64_t n = std::min(kMaxBlocks, n_blocks - block);
    type.dequantize(blocks.data() + block * type.block_bytes, values.data(), n);
    for (std::int64_t i = 0; i < n * type.block_elements; ++i) {
      const float value = values[static_cast<std::size_t>(i)];
      if (std::isfinite(value)) continue;
      throw ModelError(Reason::MODEL_NONFINITE,
                       model.name() + ": tensor " + printable(tensor.name, 128) + ": element " +
                           std::to_string(first_element + block * type.block_elements + i) + " is " +
                           (std::isnan(value) ? "NaN" : "infinite") + ", expected finite weights");
    }
  }
}

}  // namespace

void check_data(const ModelFile& model, const TensorInfo& tensor, Scan scan) {
  const DTypeTraits& type = traits(tensor.dtype);
  const auto block_bytes = static_cast<std::uint64_t>(type.block_bytes);
  std::vector<std::byte> buffer(std::min(tensor.n_bytes, kPieceBytes / block_bytes * block_bytes));
  for (std::uint64_t offset = 0; offset < tensor.n_bytes; offset += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), tensor.n_bytes - offset));
    model.read(tensor, offset, piece);
    if (scan == Scan::VALUES && tensor.integer_bytes == 0) {
      check_finite(model, tensor, piece, static_cast<std::int64_t>(offset / block_bytes) * type.block_elements);
    }
  }
}

void check_data(const ModelFile& model, Scan scan) {
  for (const TensorInfo& tensor : model.tensors()) check_data(model, tensor, scan);
}

}  // namespace imp
