// Inner loops of attention over a quantized cache. Queries are quantized too, so that dot products of blocks are exact
// integers. Values are multiplied in float32 by weights that include their scales.
#pragma once

#include "backend/cpu/attention/attention_tile.inl"
#include "backend/cpu/kv/kv_q8.inl"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

#if defined(__AVX512VNNI__)
struct FourCodes {
  IntLanes v;
};
inline FourCodes broadcast_codes(const std::int8_t* codes) {
  std::int32_t word;
  __builtin_memcpy(&word, codes, sizeof word);
  return {broadcast_int(word)};
}
// sums + codes (0 to 255) · four query codes (-127 to 127).
inline IntLanes add_codes(IntLanes sums, IntLanes codes, FourCodes query) {
  return {_mm512_dpbusd_epi32(sums.v, codes.v, query.v.v)};
}
#else
struct FourCodes {
  IntLanes even, odd;  // 16-bit halves
};
inline FourCodes broadcast_codes(const std::int8_t* codes) {
  const auto halves = [](int low, int high) { return broadcast_int((low & 0xFFFF) | high * 65536); };
  return {halves(codes[0], codes[2]), halves(codes[1], codes[3])};
}
inline IntLanes add_codes(IntLanes sums, IntLanes codes, FourCodes query) {
  const IntLanes bytes = broadcast_int(0x00FF00FF);
  return sums + dot_halves(codes & bytes, query.even) + dot_halves(shift_right_logical<8>(codes) & bytes, query.odd);
}
#endif

// scores[query][16 · panel ...] = scale · q · k for n_queries × n_panels at once, blocks in order.
template <int n_queries, int n_panels>
inline void score_quantized(const void* const* q, const void* const* k, const AttentionTile& tile, float* scores) {
  Lanes dot[n_queries][n_panels];
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) dot[i][p] = zero();
  }
  for (int block = 0; block < tile.head_dim / kBlock; ++block) {
    const ActivationBlock* query[n_queries];
    IntLanes sums[n_queries][n_panels];
    for (int i = 0; i < n_queries; ++i) {
      query[i] = static_cast<const ActivationBlock*>(q[i]) + block;
      for (int p = 0; p < n_panels; ++p) sums[i][p] = broadcast_int(query[i]->bias);
    }
    for (int word = 0; word < kBlockWords; ++word) {
      IntLanes codes[n_panels];
      for (int p = 0; p < n_panels; ++p) {
        codes[p] = load_int(static_cast<const std::int32_t*>(k[p]) + (block * kBlockWords + word) * kPanelTokens);
      }
      for (int i = 0; i < n_queries; ++i) {
        const FourCodes factor = broadcast_codes(query[i]->codes + 4 * word);
        for (int p = 0; p < n_panels; ++p) sums[i][p] = add_codes(sums[i][p], codes[p], factor);
      }
    }
    for (int p = 0; p < n_panels; ++p) {
      const auto* codes = static_cast<const std::uint8_t*>(k[p]);
      const auto* scales = reinterpret_cast<const std::uint16_t*>(codes + tile.head_dim * kPanelTokens);
      const Lanes scale = load_f16(scales + block * kPanelTokens);
      for (int i = 0; i < n_queries; ++i) {
        dot[i][p] = fma(from_int(sums[i][p]), scale * broadcast(query[i]->scale), dot[i][p]);
      }
    }
  }
  const Lanes scale = broadcast(tile.scale);
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) store(scores + i * kScoreStride + p * kPanelTokens, dot[i][p] * scale);
  }
}

// values[query][16 · n_lanes from `element`] += weights[query][token] · scale · codes for the tokens [begin, end).
template <int n_queries, int n_lanes>
inline void add_quantized(const HeadValues& v, int begin, int end, int element, const float* weights, float* values) {
  constexpr int n_blocks = ceil_div(n_lanes, 2);
  Lanes sums[n_queries][n_lanes];
  for (int i = 0; i < n_queries; ++i) {
    for (int j = 0; j < n_lanes; ++j) sums[i][j] = load(values + i * v.width + element + j * kLanes);
  }
  while (begin < end) {
    const auto* const codes = static_cast<const std::int8_t*>(v.panel(begin));
    const auto* const scales = reinterpret_cast<const std::uint16_t*>(codes + kPanelTokens * v.width);
    const int first = begin / kPanelTokens * kPanelTokens;
    float factors[n_queries][n_blocks][kPanelTokens];
    for (int block = 0; block < n_blocks; ++block) {
      const Lanes scale = load_f16(scales + (element / kBlock + block) * kPanelTokens);
      for (int i = 0; i < n_queries; ++i) store(factors[i][block], load(weights + i * kScoreStride + first) * scale);
    }
    const int stop = first + kPanelTokens < end ? first + kPanelTokens : end;
    for (; begin < stop; ++begin) {
      const std::int8_t* const row = codes + (begin - first) * v.width + element;
      Lanes part[n_lanes];
      for (int j = 0; j < n_lanes; ++j) part[j] = from_int(load_i8(row + j * kLanes));
      for (int i = 0; i < n_queries; ++i) {
        for (int j = 0; j < n_lanes; ++j) {
          sums[i][j] = fma(broadcast(factors[i][j / 2][begin - first]), part[j], sums[i][j]);
        }
      }
    }
  }
  for (int i = 0; i < n_queries; ++i) {
    for (int j = 0; j < n_lanes; ++j) store(values + i * v.width + element + j * kLanes, sums[i][j]);
  }
}

}  // namespace
}  // namespace imp::cpu
