// GGUF's type numbers.
#include "files/gguf_format.h"

#include <algorithm>
#include <array>

namespace imp::gguf {
namespace {

constexpr std::array kTensorTypes{
    TensorType{0, "f32", DType::F32},          TensorType{1, "f16", DType::F16},
    TensorType{2, "q4_0", DType::Q4_0},        TensorType{3, "q4_1", DType::Q4_1},
    TensorType{6, "q5_0", DType::Q5_0},        TensorType{7, "q5_1", DType::Q5_1},
    TensorType{8, "q8_0", DType::Q8_0},        TensorType{9, "q8_1", std::nullopt},
    TensorType{10, "q2_k", DType::Q2_K},       TensorType{11, "q3_k", DType::Q3_K},
    TensorType{12, "q4_k", DType::Q4_K},       TensorType{13, "q5_k", DType::Q5_K},
    TensorType{14, "q6_k", DType::Q6_K},       TensorType{15, "q8_k", std::nullopt},
    TensorType{16, "iq2_xxs", DType::IQ2_XXS}, TensorType{17, "iq2_xs", DType::IQ2_XS},
    TensorType{18, "iq3_xxs", DType::IQ3_XXS}, TensorType{19, "iq1_s", DType::IQ1_S},
    TensorType{20, "iq4_nl", DType::IQ4_NL},   TensorType{21, "iq3_s", DType::IQ3_S},
    TensorType{22, "iq2_s", DType::IQ2_S},     TensorType{23, "iq4_xs", DType::IQ4_XS},
    TensorType{24, "i8", std::nullopt},        TensorType{25, "i16", std::nullopt},
    TensorType{26, "i32", std::nullopt},       TensorType{27, "i64", std::nullopt},
    TensorType{28, "f64", std::nullopt},       TensorType{29, "iq1_m", DType::IQ1_M},
    TensorType{30, "bf16", DType::BF16},       TensorType{34, "tq1_0", DType::TQ1_0},
    TensorType{35, "tq2_0", DType::TQ2_0},     TensorType{39, "mxfp4", DType::MXFP4},
    TensorType{40, "nvfp4", std::nullopt},     TensorType{41, "q1_0", std::nullopt},
};

}  // namespace

std::optional<ValueType> scalar_type(std::uint32_t id) noexcept {
  constexpr std::array<std::optional<ValueType>, 13> kTypes{
      ValueType::U8,  ValueType::I8,  ValueType::U16,  ValueType::I16,    ValueType::U32,
      ValueType::I32, ValueType::F32, ValueType::BOOL, ValueType::STRING, std::nullopt,
      ValueType::U64, ValueType::I64, ValueType::F64};
  return id < kTypes.size() ? kTypes[id] : std::nullopt;
}

const TensorType* tensor_type(std::uint32_t id) noexcept {
  const auto row = std::ranges::find(kTensorTypes, id, &TensorType::id);
  return row == kTensorTypes.end() ? nullptr : &*row;
}

}  // namespace imp::gguf
