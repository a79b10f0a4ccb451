// The dtype table.
#include "tensor/dtype.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "tensor/quant/decode.h"
#include "tensor/quant/with_block.h"

namespace imp {
namespace {

// Blocks may have any alignment.
template <class Block>
Block load_block(const std::byte* blocks, std::int64_t index) noexcept {
  Block block;
  std::memcpy(&block, blocks + index * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
  return block;
}

template <class Block>
void dequantize(const std::byte* blocks, float* out, std::int64_t n_blocks) noexcept {
  if constexpr (std::is_same_v<Block, quant::BlockF32>) {
    std::memcpy(out, blocks, static_cast<std::size_t>(n_blocks) * sizeof(Block));
    return;
  }
  for (std::int64_t n = 0; n < n_blocks; ++n, out += Block::kElements) {
    quant::decode_groups(load_block<Block>(blocks, n), 0, Block::kGroups, out);
  }
}

template <class Block>
constexpr DTypeTraits row(DType dtype, std::string_view name) noexcept {
  return {dtype, name, Block::kElements, sizeof(Block), dequantize<Block>};
}

#define IMP_ROW(name, Type) row<quant::Block##Type>(DType::Type, #name),
constexpr DTypeTraits kTable[] = {IMP_DTYPES(IMP_ROW)};
#undef IMP_ROW

}  // namespace

std::span<const DTypeTraits> all_dtypes() noexcept {
  return kTable;
}

const DTypeTraits& traits(DType dtype) noexcept {
  return kTable[static_cast<std::size_t>(dtype)];
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  const auto row = std::ranges::find(kTable, name, &DTypeTraits::name);
  return row == std::end(kTable) ? std::nullopt : std::optional(row->dtype);
}

std::string dtype_names() {
  std::string names;
  for (const DTypeTraits& row : kTable) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

std::optional<std::int64_t> row_bytes(DType dtype, std::int64_t n_elements) noexcept {
  const DTypeTraits& row = traits(dtype);
  std::int64_t bytes = 0;
  if (n_elements < 0 || n_elements % row.block_elements != 0) return std::nullopt;
  if (__builtin_mul_overflow(n_elements / row.block_elements, row.block_bytes, &bytes)) return std::nullopt;
  return bytes;
}

}  // namespace imp
