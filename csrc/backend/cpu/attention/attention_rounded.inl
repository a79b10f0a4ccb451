// Sums of a split's values with rounded weights, for rotated types: the weights of 64 tokens become integers of 8 bits,
// relative to the greatest. So sums over these tokens are exact integers, four tokens at a time.
//
// A token that a query does not see has weight 0 in them, whatever the cache holds there.
#pragma once

#include "backend/cpu/attention/attention_softmax.inl"
#include "backend/cpu/attention/attention_tile.inl"
#include "backend/cpu/kv/code_products.inl"
#include "backend/cpu/kv/kv_codes.inl"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

constexpr int kRunTokens = 64;  // aligned to the split
constexpr int kRunPanels = kRunTokens / kPanelTokens;

// Of one query over a run of tokens and a block of elements.
struct RoundedWeights {
  std::uint8_t codes[kRunTokens];
  float step;        // weight = code · step; NaN if a seen token's scale is not a number
  std::int32_t sum;  // of the codes, where kValueOffset is not 0
};

// Sets the products of tokens that the query does not see to zero.
inline void drop_unseen(KeyRange seen, Lanes (&products)[kRunPanels]) {
  if (seen.begin <= 0 && seen.end >= kRunTokens) return;
  for (int panel = 0; panel < kRunPanels; ++panel) {
    const IntLanes token = load_int(kLaneNumbers) + broadcast_int(panel * kPanelTokens);
    const Mask is_seen = less(broadcast_int(seen.begin - 1), token) & less(token, broadcast_int(seen.end));
    products[panel] = select(is_seen, products[panel], zero());
  }
}

// weights[token] · scale, rounded. `seen` counts from the run's start.
inline void round_weights(const float* weights, const Lanes (&scales)[kRunPanels], KeyRange seen, RoundedWeights& out) {
  Lanes products[kRunPanels];
  for (int panel = 0; panel < kRunPanels; ++panel) {
    products[panel] = load(weights + panel * kPanelTokens) * scales[panel];
  }
  drop_unseen(seen, products);
  IntLanes most = broadcast_int(0);
  for (const Lanes& product : products) most = max(most, bits(product) & broadcast_int(0x7FFFFFFF));
  const std::int32_t greatest_bits = max_of(most);
  constexpr std::int32_t kInfinityBits = 0x7F800000;     // NaN is above
  constexpr std::int32_t kSmallest = (127 - 119) << 23;  // the bits of 2^-119
  if (greatest_bits >= kInfinityBits || greatest_bits < kSmallest) {
    __builtin_memset(out.codes, 0, sizeof out.codes);
    out.step = greatest_bits >= kInfinityBits ? __builtin_nanf("") : 0.0F;
    out.sum = 0;
    return;
  }
  const float greatest = __builtin_bit_cast(float, greatest_bits);
  out.step = greatest / 255.0F;
  const Lanes inverse = broadcast(255.0F / greatest);
  IntLanes codes[kRunPanels];
  for (int panel = 0; panel < kRunPanels; ++panel) {
    codes[panel] = to_int(products[panel] * inverse);
    store_i8(reinterpret_cast<std::int8_t*>(out.codes) + panel * kPanelTokens, codes[panel]);
  }
  if constexpr (kValueOffset != 0) out.sum = sum(codes[0] + codes[1] + (codes[2] + codes[3]));
}

// values[query][block] += weights · codes for a run of n_quads times four tokens.
template <class Storage, int n_queries>
inline void add_run(const HeadValues& v, int first_panel, int n_quads, int block, const RoundedWeights* weights,
                    float* values) {
  constexpr int kQuads = kPanelTokens / 4;  // in a panel
  IntLanes sums[n_queries][2];
  for (int i = 0; i < n_queries; ++i) {
    sums[i][0] = sums[i][1] = broadcast_int(kValueOffset != 0 ? -kValueOffset * weights[i].sum : 0);
  }
  for (int quad = 0; quad < n_quads; ++quad) {
    const void* const panel = v.panel((first_panel + quad / kQuads) * kPanelTokens);
    IntLanes codes[2];
    Storage::load_quads(panel, block * kQuads + quad % kQuads, codes);
    for (int i = 0; i < n_queries; ++i) {
      const FourCodes factor = broadcast_weights(weights[i].codes + 4 * quad);
      for (int half = 0; half < 2; ++half) sums[i][half] = add_weighted_codes(sums[i][half], codes[half], factor);
    }
  }
  for (int i = 0; i < n_queries; ++i) {
    for (int half = 0; half < 2; ++half) {
      float* const to = values + i * v.width + block * kKvBlock + half * kLanes;
      store(to, fma(from_int(sums[i][half]), broadcast(weights[i].step), load(to)));
    }
  }
}

template <class Storage, int n_queries>
inline void add_runs(const HeadValues& v, int first_panel, int n_quads, int block, const RoundedWeights* weights,
                     int count, float* values) {
  for (; count >= n_queries; count -= n_queries) {
    add_run<Storage, n_queries>(v, first_panel, n_quads, block, weights, values);
    weights += n_queries;
    values += n_queries * v.width;
  }
  if constexpr (n_queries > 1) {
    add_runs<Storage, power_within(n_queries - 1)>(v, first_panel, n_quads, block, weights, count, values);
  }
}

// Of a block in the panels of a run; zeros for panels that hold none of its tokens.
template <class Storage>
inline void load_scales(const HeadValues& v, int begin, int n_tokens, int block, Lanes (&scales)[kRunPanels]) {
  for (int panel = 0; panel < kRunPanels; ++panel) {
    scales[panel] = zero();
    if (panel * kPanelTokens >= n_tokens) continue;
    const void* const codes = v.panel(begin + panel * kPanelTokens);
    scales[panel] = load_f16(scales_of<Storage>(codes, v.width) + block * kPanelTokens);
  }
}

template <class Storage>
void add_rounded_values(const AttentionTile& tile, const SplitPanels& panels, const KeyRange* seen, KeyRange any,
                        const float* weights, float* values) {
  const int per_kv_head = tile.n_rows * tile.n_heads;
  const int width = padded_to_lanes(tile.head_dim);
  __builtin_memset(values, 0, static_cast<std::size_t>(tile.n_queries() * width) * sizeof(float));
  RoundedWeights rounded[kTileQueries];
  for (int begin = any.begin / kRunTokens * kRunTokens; begin < any.end; begin += kRunTokens) {
    const int n_tokens = any.end - begin < kRunTokens ? any.end - begin : kRunTokens;
    const int first_panel = begin / kPanelTokens;
    for (int head = 0; head < tile.n_kv_heads; ++head) {
      const HeadValues v = {panels.v, head * panels.v_head_bytes, width};
      const int first = head * per_kv_head;
      for (int block = 0; block < width / kKvBlock; ++block) {
        Lanes scales[kRunPanels];
        load_scales<Storage>(v, begin, n_tokens, block, scales);
        for (int i = 0; i < per_kv_head; ++i) {
          const KeyRange here = {seen[first + i].begin - begin, seen[first + i].end - begin};
          round_weights(weights + (first + i) * kScoreStride + begin, scales, here, rounded[i]);
        }
        add_runs<Storage, kRoundedQueries>(v, first_panel, ceil_div(n_tokens, 4), block, rounded, per_kv_head,
                                           values + first * width);
      }
    }
  }
}

}  // namespace
}  // namespace imp::cpu
