// From a type, which is known when a program runs, to its block, which is known when it is compiled.
#pragma once

#include "tensor/dtype.h"
#include "tensor/quant/f8_e4m3.h"
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

namespace imp::quant {

// Calls use.operator()<Block>() with the block of the type.
template <class Use>
decltype(auto) with_block(DType type, const Use& use) {
  switch (type) {
    case DType::F32:
      return use.template operator()<BlockF32>();
    case DType::F16:
      return use.template operator()<BlockF16>();
    case DType::BF16:
      return use.template operator()<BlockBF16>();
    case DType::Q4_0:
      return use.template operator()<BlockQ4_0>();
    case DType::Q4_1:
      return use.template operator()<BlockQ4_1>();
    case DType::Q5_0:
      return use.template operator()<BlockQ5_0>();
    case DType::Q5_1:
      return use.template operator()<BlockQ5_1>();
    case DType::Q8_0:
      return use.template operator()<BlockQ8_0>();
    case DType::Q2_K:
      return use.template operator()<BlockQ2_K>();
    case DType::Q3_K:
      return use.template operator()<BlockQ3_K>();
    case DType::Q4_K:
      return use.template operator()<BlockQ4_K>();
    case DType::Q5_K:
      return use.template operator()<BlockQ5_K>();
    case DType::Q6_K:
      return use.template operator()<BlockQ6_K>();
    case DType::IQ4_NL:
      return use.template operator()<BlockIQ4_NL>();
    case DType::IQ4_XS:
      return use.template operator()<BlockIQ4_XS>();
    case DType::MXFP4:
      return use.template operator()<BlockMXFP4>();
    case DType::TQ1_0:
      return use.template operator()<BlockTQ1_0>();
    case DType::TQ2_0:
      return use.template operator()<BlockTQ2_0>();
    case DType::IQ1_S:
      return use.template operator()<BlockIQ1_S>();
    case DType::IQ1_M:
      return use.template operator()<BlockIQ1_M>();
    case DType::IQ2_XXS:
      return use.template operator()<BlockIQ2_XXS>();
    case DType::IQ2_XS:
      return use.template operator()<BlockIQ2_XS>();
    case DType::IQ2_S:
      return use.template operator()<BlockIQ2_S>();
    case DType::IQ3_XXS:
      return use.template operator()<BlockIQ3_XXS>();
    case DType::IQ3_S:
      return use.template operator()<BlockIQ3_S>();
    case DType::F8_E4M3:
      break;
  }
  return use.template operator()<BlockF8_E4M3>();
}

}  // namespace imp::quant
