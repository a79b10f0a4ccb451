// Inner loops of attention over a quantized cache. Queries are quantized too, so that dot products of blocks are exact
// integers. Values of q8_0 are multiplied in float32 by weights that include their scales. Those of rotated types are
// in attention_rounded.inl.
#pragma once

#include "backend/cpu/attention/attention_tile.inl"
#include "backend/cpu/gemm/quantized/quantize_block.inl"
#include "backend/cpu/kv/code_products.inl"
#include "backend/cpu/kv/kv_codes.inl"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

// scores[query][16 · panel ...] = scale · q · k for n_queries × n_panels at once, blocks in order.
template <class Storage, int n_queries, int n_panels>
inline void score_quantized(const void* const* q, const void* const* k, const AttentionTile& tile, float* scores) {
  Lanes dot[n_queries][n_panels];
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) dot[i][p] = zero();
  }
  for (int block = 0; block < tile.head_dim / kKvBlock; ++block) {
    const ActivationBlock* query[n_queries];
    IntLanes sums[n_queries][n_panels];
    for (int i = 0; i < n_queries; ++i) {
      query[i] = static_cast<const ActivationBlock*>(q[i]) + block;
      for (int p = 0; p < n_panels; ++p) sums[i][p] = broadcast_int(kKeyOffset != 0 ? query[i]->bias : 0);
    }
    constexpr int kGroups = kBlockWords / Storage::kWordsTogether;
    for (int group = 0; group < kGroups; ++group) {
      IntLanes codes[n_panels][Storage::kWordsTogether];
      for (int p = 0; p < n_panels; ++p) Storage::load_words(k[p], block, group, codes[p]);
      for (int i = 0; i < n_queries; ++i) {
        for (int w = 0; w < Storage::kWordsTogether; ++w) {
          const FourCodes factor = broadcast_codes(query[i]->codes + 4 * (group + w * kGroups));
          for (int p = 0; p < n_panels; ++p) sums[i][p] = add_codes(sums[i][p], codes[p][w], factor);
        }
      }
    }
    for (int p = 0; p < n_panels; ++p) {
      const Lanes scale = load_f16(scales_of<Storage>(k[p], tile.head_dim) + block * kPanelTokens);
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
template <class Storage, int n_queries, int n_lanes>
inline void add_quantized(const HeadValues& v, int begin, int end, int element, const float* weights, float* values) {
  constexpr int n_blocks = ceil_div(n_lanes, 2);
  Lanes sums[n_queries][n_lanes];
  for (int i = 0; i < n_queries; ++i) {
    for (int j = 0; j < n_lanes; ++j) sums[i][j] = load(values + i * v.width + element + j * kLanes);
  }
  while (begin < end) {
    const auto* const codes = static_cast<const std::uint8_t*>(v.panel(begin));
    const std::uint16_t* const scales = scales_of<Storage>(codes, v.width);
    const int first = begin / kPanelTokens * kPanelTokens;
    float factors[n_queries][n_blocks][kPanelTokens];
    for (int block = 0; block < n_blocks; ++block) {
      const Lanes scale = load_f16(scales + (element / kKvBlock + block) * kPanelTokens);
      for (int i = 0; i < n_queries; ++i) store(factors[i][block], load(weights + i * kScoreStride + first) * scale);
    }
    const int stop = first + kPanelTokens < end ? first + kPanelTokens : end;
    for (; begin < stop; ++begin) {
      Lanes part[n_lanes];
      Storage::load_values(codes + code_bytes<Storage>((begin - first) * v.width + element), part);
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
