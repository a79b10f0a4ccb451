// Attention of a tile of queries over one split of keys, and the merge of splits.
//
// Scores have tokens in their lanes and sum over head_dim in order; values have head_dim in their lanes and sum over
// tokens in order. So no sum ever crosses lanes except that of the softmax weights, and how many queries, panels or
// lanes a loop takes at once changes no bit. Memory is read in the order in which it lies: a few panels at a time, for
// all kv heads of the tile. Keys that a query may not see are not read into anything it keeps: the
// cache may hold NaN there.
#pragma once

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/kv_store.inl"
#include "backend/cpu/math.h"

namespace imp::cpu {
namespace {

// Accumulators that stay in registers: of 32 AVX-512 registers, or of the 8 pairs that AVX2 has.
#if defined(__AVX512F__)
constexpr int kAccumulators = 16;
#else
constexpr int kAccumulators = 4;
#endif

// Tokens of a split that a query sees, counted from the split's start: [begin, end), empty where begin >= end.
struct Visible {
  int begin, end;
};

inline Visible visible(const AttentionTile& tile, int row, int split_position) {
  const int position = tile.first_position + row;
  const int first = tile.window > 0 && position - tile.window + 1 > 0 ? position - tile.window + 1 : 0;
  const int begin = first - split_position;
  const int end = position + 1 - split_position;
  return {begin > 0 ? begin : 0, end < kSplitTokens ? end : kSplitTokens};
}

inline const float* query(const AttentionTile& tile, int i) {
  return tile.q + tile.row(i) * tile.row_stride + tile.head(i) * tile.head_dim;
}

// Panels read side by side: as many streams as memory serves best.
constexpr int kPanelsAtOnce = 4;

// scores[query][16 · panel ...] = q · k for n_queries × n_panels at once.
template <class Store, int n_queries, int n_panels>
inline void score_block(const float* const* q, const void* const* k, int head_dim, float* scores) {
  Lanes dot[n_queries][n_panels];
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) dot[i][p] = zero();
  }
  for (int d = 0; d < head_dim; ++d) {
    Lanes key[n_panels];
    for (int p = 0; p < n_panels; ++p) {
      key[p] = Store::read(static_cast<const typename Store::Element*>(k[p]) + d * kPanelTokens);
    }
    for (int i = 0; i < n_queries; ++i) {
      const Lanes element = broadcast(q[i][d]);
      for (int p = 0; p < n_panels; ++p) dot[i][p] = fma(element, key[p], dot[i][p]);
    }
  }
  for (int i = 0; i < n_queries; ++i) {
    for (int p = 0; p < n_panels; ++p) store(scores + i * kSplitTokens + p * kPanelTokens, dot[i][p]);
  }
}

// For n_queries queries, as many panels at once as there are accumulators.
template <class Store, int n_queries, int n_panels>
inline void score_panels(const float* const* q, const void* const* k, int count, int head_dim, float* scores) {
  for (; count >= n_panels; count -= n_panels) {
    score_block<Store, n_queries, n_panels>(q, k, head_dim, scores);
    k += n_panels;
    scores += n_panels * kPanelTokens;
  }
  if constexpr (n_panels > 1) score_panels<Store, n_queries, n_panels / 2>(q, k, count, head_dim, scores);
}

template <class Store, int n_queries>
inline void score_queries(const float* const* q, int count, const void* const* k, int n_panels, int head_dim,
                          float* scores) {
  constexpr int at_once = kAccumulators / n_queries < kPanelsAtOnce ? kAccumulators / n_queries : kPanelsAtOnce;
  for (; count >= n_queries; count -= n_queries) {
    score_panels<Store, n_queries, at_once>(q, k, n_panels, head_dim, scores);
    q += n_queries;
    scores += n_queries * kSplitTokens;
  }
  if constexpr (n_queries > 1) score_queries<Store, n_queries / 2>(q, count, k, n_panels, head_dim, scores);
}

// The raw dot products of all queries with the panels [begin, end).
template <class Store>
inline void score(const AttentionTile& tile, const SplitPanels& panels, int begin, int end, float* scores) {
  const float* q[kTileQueries];
  for (int i = 0; i < tile.n_queries(); ++i) q[i] = query(tile, i);
  const int per_kv_head = tile.n_rows * tile.n_heads;
  for (int first = begin; first < end; first += kPanelsAtOnce) {
    const int n_panels = end - first < kPanelsAtOnce ? end - first : kPanelsAtOnce;
    for (int head = 0; head < tile.n_kv_heads; ++head) {
      const void* k[kPanelsAtOnce];
      for (int p = 0; p < n_panels; ++p) {
        k[p] = static_cast<const char*>(panels.k[first + p]) + head * panels.k_head_bytes;
      }
      const int i = head * per_kv_head;
      score_queries<Store, kAccumulators / 2>(q + i, per_kv_head, k, n_panels, tile.head_dim,
                                              scores + i * kSplitTokens + first * kPanelTokens);
    }
  }
}

struct Softmax {
  float greatest, sum;
};

// Turns the raw dot products of one query into exp(score - greatest), zero outside what it sees.
inline Softmax weigh_scores(const AttentionTile& tile, Visible seen, float* scores) {
  std::int32_t lane_numbers[kLanes];
  for (int i = 0; i < kLanes; ++i) lane_numbers[i] = i;
  const IntLanes lanes = load_int(lane_numbers);
  const Lanes least = broadcast(-__builtin_inff());
  const int first = seen.begin / kPanelTokens * kPanelTokens;

  Lanes most = least;
  for (int t = first; t < seen.end; t += kPanelTokens) {
    Lanes score = load(scores + t) * broadcast(tile.scale);
    if (tile.soft_cap > 0) {
      const Lanes cap = broadcast(tile.soft_cap);
      score = cap * tanh(score / cap);
    }
    const IntLanes token = lanes + broadcast_int(t);
    const Mask is_seen = less(broadcast_int(seen.begin - 1), token) & less(token, broadcast_int(seen.end));
    score = select(is_seen, score, least);
    store(scores + t, score);
    most = max(most, score);
  }
  const float greatest = max_of(most);
  Lanes sum_of_weights = zero();
  for (int t = first; t < seen.end; t += kPanelTokens) {
    const Lanes weight = exp(load(scores + t) - broadcast(greatest));
    store(scores + t, weight);
    sum_of_weights = sum_of_weights + weight;
  }
  return {greatest, sum(sum_of_weights)};
}

// The values of one kv head in a split, as panels' addresses.
struct HeadValues {
  const void* const* panels;
  std::ptrdiff_t head_offset;
};

// values[query][16 · n_lanes elements] += weights[query][token] · V[token] for tokens [begin, end), in order.
template <class Store, int n_queries, int n_lanes>
inline void add_values_block(const HeadValues& v, int begin, int end, int width, int element, const float* weights,
                             float* values) {
  using Element = typename Store::Element;
  Lanes sums[n_queries][n_lanes];
  for (int i = 0; i < n_queries; ++i) {
    for (int j = 0; j < n_lanes; ++j) sums[i][j] = load(values + i * width + j * kLanes);
  }
  while (begin < end) {
    const int panel = begin / kPanelTokens;
    const int panel_end = (panel + 1) * kPanelTokens < end ? (panel + 1) * kPanelTokens : end;
    const void* head = static_cast<const char*>(v.panels[panel]) + v.head_offset;
    const auto* row = static_cast<const Element*>(head) + (begin % kPanelTokens) * width + element;
    for (; begin < panel_end; ++begin, row += width) {
      Lanes part[n_lanes];
      for (int j = 0; j < n_lanes; ++j) part[j] = Store::read(row + j * kLanes);
      for (int i = 0; i < n_queries; ++i) {
        const Lanes weight = broadcast(weights[i * kSplitTokens + begin]);
        for (int j = 0; j < n_lanes; ++j) sums[i][j] = fma(weight, part[j], sums[i][j]);
      }
    }
  }
  for (int i = 0; i < n_queries; ++i) {
    for (int j = 0; j < n_lanes; ++j) store(values + i * width + j * kLanes, sums[i][j]);
  }
}

template <class Store, int n_queries, int n_lanes>
inline void add_values_lanes(const HeadValues& v, int begin, int end, int width, int element, const float* weights,
                             float* values) {
  for (; element + n_lanes * kLanes <= width; element += n_lanes * kLanes) {
    add_values_block<Store, n_queries, n_lanes>(v, begin, end, width, element, weights, values + element);
  }
  if constexpr (n_lanes > 1) {
    add_values_lanes<Store, n_queries, n_lanes / 2>(v, begin, end, width, element, weights, values);
  }
}

// Over all elements of n_queries queries.
template <class Store, int n_queries>
inline void add_values(const HeadValues& v, Visible tokens, int width, const float* weights, float* values) {
  if (tokens.begin >= tokens.end) return;
  constexpr int n_lanes = kAccumulators / n_queries < 8 ? kAccumulators / n_queries : 8;
  add_values_lanes<Store, n_queries, n_lanes>(v, tokens.begin, tokens.end, width, 0, weights, values);
}

// Queries of one block may see different tokens: what all see is taken together, the rest one query at a time. Each
// query's tokens stay in ascending order.
template <class Store, int n_queries>
inline void add_values_of_queries(const HeadValues& v, const Visible* seen, int count, int width, const float* weights,
                                  float* values) {
  for (; count >= n_queries; count -= n_queries) {
    Visible common = seen[0];
    for (int i = 1; i < n_queries; ++i) {
      if (seen[i].begin > common.begin) common.begin = seen[i].begin;
      if (seen[i].end < common.end) common.end = seen[i].end;
    }
    const bool together = common.begin < common.end;
    for (int i = 0; i < n_queries; ++i) {
      const Visible before = {seen[i].begin, together ? common.begin : seen[i].end};
      add_values<Store, 1>(v, before, width, weights + i * kSplitTokens, values + i * width);
    }
    if (together) {
      add_values<Store, n_queries>(v, common, width, weights, values);
      for (int i = 0; i < n_queries; ++i) {
        add_values<Store, 1>(v, {common.end, seen[i].end}, width, weights + i * kSplitTokens, values + i * width);
      }
    }
    seen += n_queries;
    weights += n_queries * kSplitTokens;
    values += n_queries * width;
  }
  if constexpr (n_queries > 1) {
    add_values_of_queries<Store, n_queries / 2>(v, seen, count, width, weights, values);
  }
}

// Adds up the values of all queries, each over the tokens it sees.
template <class Store>
inline void add_all_values(const AttentionTile& tile, const SplitPanels& panels, const Visible* seen, Visible any,
                           const float* weights, float* values) {
  constexpr int at_once = kAccumulators >= 16 ? 4 : 2;
  constexpr int chunk = kPanelsAtOnce * kPanelTokens;
  const int per_kv_head = tile.n_rows * tile.n_heads;
  const int width = padded_to_lanes(tile.head_dim);
  for (int begin = any.begin / chunk * chunk; begin < any.end; begin += chunk) {
    Visible here[kTileQueries];
    for (int i = 0; i < tile.n_queries(); ++i) {
      here[i].begin = seen[i].begin > begin ? seen[i].begin : begin;
      here[i].end = seen[i].end < begin + chunk ? seen[i].end : begin + chunk;
    }
    for (int head = 0; head < tile.n_kv_heads; ++head) {
      const int i = head * per_kv_head;
      add_values_of_queries<Store, at_once>({panels.v, head * panels.v_head_bytes}, here + i, per_kv_head, width,
                                            weights + i * kSplitTokens, values + i * width);
    }
  }
}

template <class Store>
void attend_split(const AttentionTile& tile, const SplitPanels& panels, float* scores, const AttentionState& state) {
  const int n_queries = tile.n_queries();
  const int width = padded_to_lanes(tile.head_dim);
  Visible seen[kTileQueries];
  Visible any = {kSplitTokens, 0};
  for (int i = 0; i < n_queries; ++i) {
    seen[i] = visible(tile, tile.row(i), panels.first_position);
    if (seen[i].begin >= seen[i].end) continue;
    if (seen[i].begin < any.begin) any.begin = seen[i].begin;
    if (seen[i].end > any.end) any.end = seen[i].end;
  }
  if (any.begin >= any.end) return;

  score<Store>(tile, panels, any.begin / kPanelTokens, (any.end + kPanelTokens - 1) / kPanelTokens, scores);
  for (int i = 0; i < n_queries; ++i) {
    if (seen[i].begin >= seen[i].end) continue;
    const Softmax softmax = weigh_scores(tile, seen[i], scores + i * kSplitTokens);
    state.greatest[i] = softmax.greatest;
    state.sum[i] = softmax.sum;
    for (int d = 0; d < width; d += kLanes) store(state.values + i * width + d, zero());
  }
  add_all_values<Store>(tile, panels, seen, any, scores, state.values);
}

void merge(const AttentionTile& tile, int split_position, const AttentionState& split, const AttentionState& into) {
  const int width = padded_to_lanes(tile.head_dim);
  for (int i = 0; i < tile.n_queries(); ++i) {
    const Visible seen = visible(tile, tile.row(i), split_position);
    if (seen.begin >= seen.end) continue;
    const float* from = split.values + i * width;
    float* to = into.values + i * width;
    const int position = tile.first_position + tile.row(i);
    const bool is_first = split_position == 0 || (tile.window > 0 && position - tile.window + 1 >= split_position);
    if (is_first) {
      into.greatest[i] = split.greatest[i];
      into.sum[i] = split.sum[i];
      for (int d = 0; d < width; d += kLanes) store(to + d, load(from + d));
      continue;
    }
    const float greatest = into.greatest[i] > split.greatest[i] ? into.greatest[i] : split.greatest[i];
    float factors[kLanes] = {into.greatest[i] - greatest, split.greatest[i] - greatest};
    store(factors, exp(load(factors)));
    into.greatest[i] = greatest;
    into.sum[i] = __builtin_fmaf(split.sum[i], factors[1], into.sum[i] * factors[0]);
    const Lanes old_factor = broadcast(factors[0]);
    const Lanes new_factor = broadcast(factors[1]);
    for (int d = 0; d < width; d += kLanes) store(to + d, fma(load(from + d), new_factor, load(to + d) * old_factor));
  }
}

void finish(const AttentionTile& tile, const AttentionState& state, float* out, std::ptrdiff_t out_stride) {
  const int width = padded_to_lanes(tile.head_dim);
  for (int i = 0; i < tile.n_queries(); ++i) {
    float* to = out + tile.row(i) * out_stride + tile.head(i) * tile.head_dim;
    const Lanes sum_of_weights = broadcast(state.sum[i]);
    for (int d = 0; d < tile.head_dim; d += kLanes) {
      store_up_to(to + d, load(state.values + i * width + d) / sum_of_weights, tile.head_dim - d);
    }
  }
}

}  // namespace
}  // namespace imp::cpu
