// Kernels over quantized weights, with AMX's tiles for integers and AVX-512 instructions for floats.
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/quantized/tile_product.inl"
#include "backend/cpu/gemm/quantized/tiles_amxint8.h"
#include "backend/cpu/gemm/quantized/types.h"

namespace imp::cpu {

#define IMP_DEFINE_TILED_RUN(name, Type, isa)     \
  void run_##name##_##isa(const GemmArgs& args) { \
    multiply_in_tiles<Type, AmxTiles>(args);      \
  }
IMP_GROUP_SCALED_TYPES(IMP_DEFINE_TILED_RUN, amxint8)

}  // namespace imp::cpu
