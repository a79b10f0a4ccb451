// The types with kernels on panel blocks, one line each. Kernels of every instruction set and their rows in the list
// are generated from it.
#pragma once

// Calls `use(name, Type, isa)` for each in the order of the kernel list. `Type` is its name in DType and weights.inl,
// and the suffix of PanelBlock, kUnits and quant::Block.
// clang-format off
#define IMP_QUANTIZED_TYPES(use, isa) \
  IMP_GROUP_SCALED_TYPES(use, isa) \
  use(q2_k, Q2_K, isa) \
  use(q3_k, Q3_K, isa) \
  use(q6_k, Q6_K, isa)

// Those of them that have a scale for each 32 elements; the others have one for each 16.
#define IMP_GROUP_SCALED_TYPES(use, isa) \
  use(q8_0, Q8_0, isa) \
  use(q4_0, Q4_0, isa) \
  use(q4_1, Q4_1, isa) \
  use(q5_0, Q5_0, isa) \
  use(q5_1, Q5_1, isa) \
  use(q4_k, Q4_K, isa) \
  use(q5_k, Q5_K, isa) \
  use(iq4_nl, IQ4_NL, isa) \
  use(iq4_xs, IQ4_XS, isa) \
  use(mxfp4, MXFP4, isa) \
  use(tq2_0, TQ2_0, isa)

// Further shapes of tiles: rows of activations times panels of weights. Calls `use(name, Type, isa, rows, panels)`.
// A shape does not change a bit of a result.
#define IMP_TILE_SHAPES(use, isa) \
  use(q8_0, Q8_0, isa, 6, 2) \
  use(q4_0, Q4_0, isa, 6, 2) \
  use(q4_k, Q4_K, isa, 6, 2) \
  use(q6_k, Q6_K, isa, 4, 2)
// clang-format on
