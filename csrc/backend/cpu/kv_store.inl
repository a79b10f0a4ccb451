// How the cache stores numbers, and how one token's keys and values enter it.
#pragma once

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/lanes.h"

namespace imp::cpu {
namespace {

struct StoreF32 {
  using Element = float;
  static Lanes read(const Element* from) { return load(from); }
  static void write(Element* to, Lanes x) { store(to, x); }
};
struct StoreF16 {
  using Element = std::uint16_t;
  static Lanes read(const Element* from) { return load_f16(from); }
  static void write(Element* to, Lanes x) { store_f16(to, x); }
};
struct StoreBF16 {
  using Element = std::uint16_t;
  static Lanes read(const Element* from) { return load_bf16(from); }
  static void write(Element* to, Lanes x) { store_bf16(to, x); }
};

// K goes into a column of its panel, V into a row, whose padding becomes zero.
template <class Store>
void append(const float* k, const float* v, int head_dim, int token_in_panel, void* k_panel, void* v_panel) {
  using Element = typename Store::Element;
  auto* column = static_cast<Element*>(k_panel) + token_in_panel;
  auto* row = static_cast<Element*>(v_panel) + token_in_panel * padded_to_lanes(head_dim);
  for (int d = 0; d < head_dim; d += kLanes) {
    const int n = head_dim - d < kLanes ? head_dim - d : kLanes;
    Element stored[kLanes];
    Store::write(stored, load_up_to(k + d, n));
    for (int i = 0; i < n; ++i) column[(d + i) * kPanelTokens] = stored[i];
    Store::write(row + d, load_up_to(v + d, n));
  }
}

}  // namespace
}  // namespace imp::cpu
