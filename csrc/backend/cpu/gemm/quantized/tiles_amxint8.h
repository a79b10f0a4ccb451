// AMX's tile registers.
#pragma once

#include <cstddef>

#include "backend/cpu/gemm/quantized/tile_config.h"

namespace imp::cpu {
namespace {

// Instructions by name, because GCC's intrinsics do not say that they read memory: it may drop the stores before them.
class AmxTiles {
 public:
  explicit AmxTiles(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  ~AmxTiles() { asm volatile("tilerelease"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int tile>
  void clear() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  template <int tile>
  void load(const void* from, std::ptrdiff_t stride) {
    asm volatile("tileloadd (%0,%1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  void store(void* to, std::ptrdiff_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
  }
  template <int sums, int a, int b>
  void add_products() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(a), "i"(b));
  }
};

}  // namespace
}  // namespace imp::cpu
