// The dtype table.
#include "tensor/dtype.h"

#include <algorithm>
#include <array>

#include "tensor/quant/floats.h"
#include "tensor/quant/iq1_m.h"
#include "tensor/quant/iq1_s.h"
#include "tensor/quant/iq2_s.h"
#include "tensor/quant/iq2_xs.h"
#include "tensor/quant/iq2_xxs.h"
#include "tensor/quant/iq3_s.h"
#include "tensor/quant/iq3_xxs.h"
#include "tensor/quant/iq4_nl.h"
#include "tensor/quant/iq4_xs.h"
#include "tensor/quant/mxfp4.h"
#include "tensor/quant/q2_k.h"
#include "tensor/quant/q3_k.h"
#include "tensor/quant/q4_0.h"
#include "tensor/quant/q4_1.h"
#include "tensor/quant/q4_k.h"
#include "tensor/quant/q5_0.h"
#include "tensor/quant/q5_1.h"
#include "tensor/quant/q5_k.h"
#include "tensor/quant/q6_k.h"
#include "tensor/quant/q8_0.h"
#include "tensor/quant/tq1_0.h"
#include "tensor/quant/tq2_0.h"

namespace imp {
namespace {

constexpr std::array kTable{
    DTypeTraits{DType::F32, "f32", 1, 4, quant::dequantize_f32},
    DTypeTraits{DType::F16, "f16", 1, 2, quant::dequantize_f16},
    DTypeTraits{DType::BF16, "bf16", 1, 2, quant::dequantize_bf16},
    DTypeTraits{DType::Q4_0, "q4_0", 32, sizeof(quant::BlockQ4_0), quant::dequantize_q4_0},
    DTypeTraits{DType::Q4_1, "q4_1", 32, sizeof(quant::BlockQ4_1), quant::dequantize_q4_1},
    DTypeTraits{DType::Q5_0, "q5_0", 32, sizeof(quant::BlockQ5_0), quant::dequantize_q5_0},
    DTypeTraits{DType::Q5_1, "q5_1", 32, sizeof(quant::BlockQ5_1), quant::dequantize_q5_1},
    DTypeTraits{DType::Q8_0, "q8_0", 32, sizeof(quant::BlockQ8_0), quant::dequantize_q8_0},
    DTypeTraits{DType::Q2_K, "q2_k", 256, sizeof(quant::BlockQ2_K), quant::dequantize_q2_k},
    DTypeTraits{DType::Q3_K, "q3_k", 256, sizeof(quant::BlockQ3_K), quant::dequantize_q3_k},
    DTypeTraits{DType::Q4_K, "q4_k", 256, sizeof(quant::BlockQ4_K), quant::dequantize_q4_k},
    DTypeTraits{DType::Q5_K, "q5_k", 256, sizeof(quant::BlockQ5_K), quant::dequantize_q5_k},
    DTypeTraits{DType::Q6_K, "q6_k", 256, sizeof(quant::BlockQ6_K), quant::dequantize_q6_k},
    DTypeTraits{DType::IQ4_NL, "iq4_nl", 32, sizeof(quant::BlockIQ4_NL), quant::dequantize_iq4_nl},
    DTypeTraits{DType::IQ4_XS, "iq4_xs", 256, sizeof(quant::BlockIQ4_XS), quant::dequantize_iq4_xs},
    DTypeTraits{DType::MXFP4, "mxfp4", 32, sizeof(quant::BlockMXFP4), quant::dequantize_mxfp4},
    DTypeTraits{DType::TQ1_0, "tq1_0", 256, sizeof(quant::BlockTQ1_0), quant::dequantize_tq1_0},
    DTypeTraits{DType::TQ2_0, "tq2_0", 256, sizeof(quant::BlockTQ2_0), quant::dequantize_tq2_0},
    DTypeTraits{DType::IQ1_S, "iq1_s", 256, sizeof(quant::BlockIQ1_S), quant::dequantize_iq1_s},
    DTypeTraits{DType::IQ1_M, "iq1_m", 256, sizeof(quant::BlockIQ1_M), quant::dequantize_iq1_m},
    DTypeTraits{DType::IQ2_XXS, "iq2_xxs", 256, sizeof(quant::BlockIQ2_XXS), quant::dequantize_iq2_xxs},
    DTypeTraits{DType::IQ2_XS, "iq2_xs", 256, sizeof(quant::BlockIQ2_XS), quant::dequantize_iq2_xs},
    DTypeTraits{DType::IQ2_S, "iq2_s", 256, sizeof(quant::BlockIQ2_S), quant::dequantize_iq2_s},
    DTypeTraits{DType::IQ3_XXS, "iq3_xxs", 256, sizeof(quant::BlockIQ3_XXS), quant::dequantize_iq3_xxs},
    DTypeTraits{DType::IQ3_S, "iq3_s", 256, sizeof(quant::BlockIQ3_S), quant::dequantize_iq3_s},
};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].dtype) != i) return false;
  }
  return kTable.back().dtype == DType::IQ3_S;
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
