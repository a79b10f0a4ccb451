// The types with kernels on tiles, one line each. The functions of every kernel and their rows in the list are made
// from it.
#pragma once

// Calls `use(name, Type, kernel)` for each in the order of the kernel list. `Type` is its name in DType, and it has a
// Tile, a WeightStep and its moves in layouts.cpp. One whose codes are integers also has TileCodes.
// clang-format off
#define IMP_INTEGER_TILE_TYPES(use, kernel) \
  use(q8_0, Q8_0, kernel) \
  use(q4_0, Q4_0, kernel) \
  use(q4_k, Q4_K, kernel) \
  use(q5_k, Q5_K, kernel) \
  use(q6_k, Q6_K, kernel)
#define IMP_FLOAT_TILE_TYPES(use, kernel) \
  use(f8_e4m3, F8_E4M3, kernel) \
  use(f16, F16, kernel) \
  use(bf16, BF16, kernel)
#define IMP_TILE_TYPES(use, kernel) \
  IMP_INTEGER_TILE_TYPES(use, kernel) \
  IMP_FLOAT_TILE_TYPES(use, kernel)
// clang-format on

// The function of a kernel of the list, from the template launch_KERNEL.
#define IMP_DECLARE_LAUNCH(name, Type, kernel) void launch_##name##_##kernel(const GemmLaunch& launch);
#define IMP_DEFINE_LAUNCH(name, Type, kernel)               \
  void launch_##name##_##kernel(const GemmLaunch& launch) { \
    launch_##kernel<DType::Type>(launch);                   \
  }
