// Dispatches from a type at run time to its block, a type at compile time.
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
#define IMP_CASE(name, Type) \
  case DType::Type:          \
    return use.template operator()<Block##Type>();
  switch (type) { IMP_DTYPES(IMP_CASE) }
#undef IMP_CASE
  return use.template operator()<BlockF32>();  // unreachable
}

}  // namespace imp::quant
