// The dtype table.
#include "tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "tensor/quant/decode.h"
#include "tensor/quant/with_block.h"

namespace imp {
namespace {

// Blocks lie at any alignment.
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

constexpr std::array kTable{
    row<quant::BlockF32>(DType::F32, "f32"),
    row<quant::BlockF16>(DType::F16, "f16"),
    row<quant::BlockBF16>(DType::BF16, "bf16"),
    row<quant::BlockQ4_0>(DType::Q4_0, "q4_0"),
    row<quant::BlockQ4_1>(DType::Q4_1, "q4_1"),
    row<quant::BlockQ5_0>(DType::Q5_0, "q5_0"),
    row<quant::BlockQ5_1>(DType::Q5_1, "q5_1"),
    row<quant::BlockQ8_0>(DType::Q8_0, "q8_0"),
    row<quant::BlockQ2_K>(DType::Q2_K, "q2_k"),
    row<quant::BlockQ3_K>(DType::Q3_K, "q3_k"),
    row<quant::BlockQ4_K>(DType::Q4_K, "q4_k"),
    row<quant::BlockQ5_K>(DType::Q5_K, "q5_k"),
    row<quant::BlockQ6_K>(DType::Q6_K, "q6_k"),
    row<quant::BlockIQ4_NL>(DType::IQ4_NL, "iq4_nl"),
    row<quant::BlockIQ4_XS>(DType::IQ4_XS, "iq4_xs"),
    row<quant::BlockMXFP4>(DType::MXFP4, "mxfp4"),
    row<quant::BlockTQ1_0>(DType::TQ1_0, "tq1_0"),
    row<quant::BlockTQ2_0>(DType::TQ2_0, "tq2_0"),
    row<quant::BlockIQ1_S>(DType::IQ1_S, "iq1_s"),
    row<quant::BlockIQ1_M>(DType::IQ1_M, "iq1_m"),
    row<quant::BlockIQ2_XXS>(DType::IQ2_XXS, "iq2_xxs"),
    row<quant::BlockIQ2_XS>(DType::IQ2_XS, "iq2_xs"),
    row<quant::BlockIQ2_S>(DType::IQ2_S, "iq2_s"),
    row<quant::BlockIQ3_XXS>(DType::IQ3_XXS, "iq3_xxs"),
    row<quant::BlockIQ3_S>(DType::IQ3_S, "iq3_s"),
    row<quant::BlockF8_E4M3>(DType::F8_E4M3, "f8_e4m3"),
};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].dtype) != i) return false;
  }
  return kTable.back().dtype == DType::F8_E4M3;
}
static_assert(in_enum_order());

}  // namespace

std::span<const DTypeTraits> all_dtypes() noexcept {
  return kTable;
}

const DTypeTraits& traits(DType dtype) noexcept {
  return kTable[static_cast<std::size_t>(dtype)];
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  const auto row = std::ranges::find(kTable, name, &DTypeTraits::name);
  return row == kTable.end() ? std::nullopt : std::optional(row->dtype);
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
