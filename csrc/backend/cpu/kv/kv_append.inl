// Writes tokens' keys and values to the cache.
#pragma once

#include "backend/cpu/kv/kv_storage.inl"
#include "backend/cpu/lanes/lanes_transpose.h"

namespace imp::cpu {
namespace {

// A token of K is a column of its panel. A whole panel of tokens is transposed in registers.
template <class Storage>
void append_keys(const PanelRows& rows, void* to_panel) {
  auto* const panel = static_cast<typename Storage::Element*>(to_panel);
  constexpr int kTogether = kLanes * Storage::kElements;
  for (int d = 0; d < rows.head_dim; d += kTogether) {
    const int left = rows.head_dim - d;
    const int n = (left < kTogether ? left : kTogether) / Storage::kElements;
    typename Storage::Element* const to = panel + d / Storage::kElements * kPanelTokens;
    if (rows.n_tokens == kPanelTokens) {
      IntLanes words[kLanes];
      for (int token = 0; token < kLanes; ++token)
        words[token] = Storage::words_of(rows.first + token * rows.stride + d, left);
      transpose(words);
      for (int i = 0; i < n; ++i) Storage::write(to + i * kPanelTokens, words[i]);
      continue;
    }
    for (int token = 0; token < rows.n_tokens; ++token) {
      typename Storage::Element column[kLanes];
      Storage::write(column, Storage::words_of(rows.first + token * rows.stride + d, left));
      for (int i = 0; i < n; ++i) to[i * kPanelTokens + rows.first_token + token] = column[i];
    }
  }
}

// A token of V is a row; its padding becomes zero.
template <class Storage>
void append_values(const PanelRows& rows, void* to_panel) {
  auto* const panel = static_cast<typename Storage::Element*>(to_panel);
  const int width = padded_to_lanes(rows.head_dim);
  for (int token = 0; token < rows.n_tokens; ++token) {
    typename Storage::Element* const row = panel + (rows.first_token + token) / Storage::kElements * width;
    for (int d = 0; d < rows.head_dim; d += kLanes) {
      const float* const from = rows.first + token * rows.stride + d;
      if constexpr (Storage::kElements == 1) {
        Storage::write(row + d, Storage::words_of(from, rows.head_dim - d));
      } else {
        // The token's half of words that it shares with a neighbour.
        const bool is_odd = (rows.first_token + token) % 2 != 0;
        const IntLanes upper = broadcast_int(static_cast<std::int32_t>(0xFFFF0000));
        const IntLanes lower = broadcast_int(0x0000FFFF);
        const IntLanes rounded = round_bf16(load_up_to(from, rows.head_dim - d));
        const IntLanes before = load_words(row + d);
        Storage::write(row + d, is_odd ? (before & lower) | (rounded & upper)
                                       : (before & upper) | shift_right_logical<16>(rounded));
      }
    }
  }
}

}  // namespace
}  // namespace imp::cpu
