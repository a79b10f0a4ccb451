// Sums of a split's values with the weights of a tile's queries. head_dim in lanes; sums over tokens in order.
#pragma once

#include "backend/cpu/attention/attention_quantized.inl"
#include "backend/cpu/attention/attention_tile.inl"
#include "backend/cpu/kv/kv_storage.inl"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

// Adds one part of a step of weights · V, then the parts after it.
template <class Storage, int n_queries, int n_lanes, int part = 0>
[[gnu::always_inline]] inline void add_weighted(typename Storage::Row row, int element, const float* weights, int step,
                                                Lanes (&sums)[n_queries][n_lanes]) {
  typename Storage::Part value[n_lanes];
  for (int j = 0; j < n_lanes; ++j) value[j] = Storage::template read<part>(row, element + j * kLanes);
  for (int i = 0; i < n_queries; ++i) {
    const typename Storage::Part weight = Storage::template factor<part>(weights + i * kScoreStride, step);
    for (int j = 0; j < n_lanes; ++j) sums[i][j] = Storage::add(sums[i][j], value[j], weight);
  }
  if constexpr (part + 1 < Storage::kParts) {
    add_weighted<Storage, n_queries, n_lanes, part + 1>(row, read_again(element), weights, step, sums);
  }
}

// values[query][16 · n_lanes from `element`] += weights[query][token] · V[token] for the tokens of steps [begin, end).
template <class Storage, int n_queries, int n_lanes>
inline void add_values_block(const HeadValues& v, int begin, int end, int element, const float* weights,
                             float* values) {
  constexpr int kPanelSteps = kPanelTokens / Storage::kElements;
  Lanes sums[n_queries][n_lanes];
  for (int i = 0; i < n_queries; ++i) {
    for (int j = 0; j < n_lanes; ++j) sums[i][j] = load(values + i * v.width + element + j * kLanes);
  }
  while (begin < end) {
    const int within = begin % kPanelSteps;
    typename Storage::Row row = Storage::values(v.panel(begin * Storage::kElements), within, v.width);
    const int stop = begin + kPanelSteps - within;
    if (within == 0 && stop <= end) {
#pragma GCC unroll 8
      for (int step = 0; step < kPanelSteps; ++step, row += v.width) {
        add_weighted<Storage>(row, element, weights, begin + step, sums);
      }
      begin = stop;
      continue;
    }
    for (const int panel_end = stop < end ? stop : end; begin < panel_end; ++begin, row += v.width) {
      add_weighted<Storage>(row, element, weights, begin, sums);
    }
  }
  for (int i = 0; i < n_queries; ++i) {
    for (int j = 0; j < n_lanes; ++j) store(values + i * v.width + element + j * kLanes, sums[i][j]);
  }
}

template <class Storage, int n_queries, int n_lanes>
inline void add_values_lanes(const HeadValues& v, int begin, int end, int element, int end_element,
                             const float* weights, float* values) {
  for (; element + n_lanes * kLanes <= end_element; element += n_lanes * kLanes) {
    if constexpr (Storage::kQuantized) {
      add_quantized<Storage, n_queries, n_lanes>(v, begin, end, element, weights, values);
    } else {
      add_values_block<Storage, n_queries, n_lanes>(v, begin, end, element, weights, values);
    }
  }
  if constexpr (n_lanes > 1) {
    add_values_lanes<Storage, n_queries, n_lanes / 2>(v, begin, end, element, end_element, weights, values);
  }
}

// Adds the weighted values of elements [element, end_element) for n_queries queries. Each step handles as many
// elements as the accumulators allow.
template <class Storage, int n_queries>
inline void add_values(const HeadValues& v, int begin, int end, int element, int end_element, const float* weights,
                       float* values) {
  constexpr int n_lanes = power_within(kAccumulators / n_queries);
  if (begin >= end) return;
  add_values_lanes<Storage, n_queries, n_lanes>(v, begin, end, element, end_element, weights, values);
}

// Adds one token of a pair. The other is masked and may hold anything.
template <class Storage, int part = 0>
inline Lanes add_lone(Lanes sum, typename Storage::Row row, int element, const float* weights, int token) {
  const typename Storage::Part value = Storage::template read_one<part>(row, element, token % Storage::kElements);
  sum = Storage::add(sum, value, Storage::template factor<part>(weights, token / Storage::kElements));
  if constexpr (part + 1 < Storage::kParts) return add_lone<Storage, part + 1>(sum, row, element, weights, token);
  return sum;
}

template <class Storage>
inline void add_lone_token(const HeadValues& v, int token, const float* weights, float* values) {
  const int within = token % kPanelTokens / Storage::kElements;
  const typename Storage::Row row = Storage::values(v.panel(token), within, v.width);
  for (int d = 0; d < v.width; d += kLanes) {
    store(values + d, add_lone<Storage>(load(values + d), row, d, weights, token));
  }
}

// One query over all keys that it sees.
template <class Storage>
inline void add_values_of_query(const HeadValues& v, KeyRange tokens, const float* weights, float* values) {
  constexpr int kTogether = Storage::kElements;
  if (tokens.begin >= tokens.end) return;
  if constexpr (kTogether > 1) {
    if (tokens.begin % kTogether != 0) add_lone_token<Storage>(v, tokens.begin++, weights, values);
  }
  add_values<Storage, 1>(v, tokens.begin / kTogether, tokens.end / kTogether, 0, v.width, weights, values);
  if constexpr (kTogether > 1) {
    if (tokens.begin < tokens.end && tokens.end % kTogether != 0) {
      add_lone_token<Storage>(v, tokens.end - 1, weights, values);
    }
  }
}

// The queries of a block may see different keys. A step that all of them see is processed for all at once; the tokens
// before and after the common steps are processed per query.
struct CommonSteps {
  int begin, end;  // equal if no step is common: then all tokens come after
};

template <class Storage, int n_queries>
inline CommonSteps common_steps(const KeyRange* seen) {
  constexpr int kTogether = Storage::kElements;
  KeyRange common = seen[0];
  for (int i = 1; i < n_queries; ++i) {
    if (seen[i].begin > common.begin) common.begin = seen[i].begin;
    if (seen[i].end < common.end) common.end = seen[i].end;
  }
  const int begin = ceil_div(common.begin, kTogether);
  const int end = common.end / kTogether;
  return begin < end ? CommonSteps{begin, end} : CommonSteps{0, 0};
}

template <class Storage, int n_queries>
inline void add_values_before(const HeadValues& v, CommonSteps common, const KeyRange* seen, const float* weights,
                              float* values) {
  for (int i = 0; i < n_queries; ++i) {
    const KeyRange before = {seen[i].begin, common.begin * Storage::kElements};
    add_values_of_query<Storage>(v, before, weights + i * kScoreStride, values + i * v.width);
  }
}

template <class Storage, int n_queries>
inline void add_values_after(const HeadValues& v, CommonSteps common, const KeyRange* seen, const float* weights,
                             float* values) {
  const int end = common.end * Storage::kElements;
  for (int i = 0; i < n_queries; ++i) {
    const KeyRange after = {end > seen[i].begin ? end : seen[i].begin, seen[i].end};
    add_values_of_query<Storage>(v, after, weights + i * kScoreStride, values + i * v.width);
  }
}

// Reads V in memory order. Each query's tokens stay in ascending order, here and below.
template <class Storage, int n_queries>
inline void add_values_of_queries(const HeadValues& v, const KeyRange* seen, int count, const float* weights,
                                  float* values) {
  for (; count >= n_queries; count -= n_queries) {
    const CommonSteps common = common_steps<Storage, n_queries>(seen);
    add_values_before<Storage, n_queries>(v, common, seen, weights, values);
    add_values<Storage, n_queries>(v, common.begin, common.end, 0, v.width, weights, values);
    add_values_after<Storage, n_queries>(v, common, seen, weights, values);
    seen += n_queries;
    weights += n_queries * kScoreStride;
    values += n_queries * v.width;
  }
  if constexpr (n_queries > 1)
    add_values_of_queries<Storage, power_within(n_queries - 1)>(v, seen, count, weights, values);
}

// Many queries share some columns of V, which stay in the L1 cache. Returns the number of queries processed.
template <class Storage>
inline int add_values_by_columns(const HeadValues& v, const KeyRange* seen, int count, const float* weights,
                                 float* values) {
  constexpr int n_queries = kValueQueries<Storage>;
  constexpr int kColumns = 2 * kLanes;
  CommonSteps common[kTileQueries / n_queries];
  count = count / n_queries * n_queries;
  for (int i = 0; i < count; i += n_queries) {
    common[i / n_queries] = common_steps<Storage, n_queries>(seen + i);
    add_values_before<Storage, n_queries>(v, common[i / n_queries], seen + i, weights + i * kScoreStride,
                                          values + i * v.width);
  }
  for (int element = 0; element < v.width; element += kColumns) {
    const int end_element = element + kColumns < v.width ? element + kColumns : v.width;
    for (int i = 0; i < count; i += n_queries) {
      const CommonSteps steps = common[i / n_queries];
      add_values<Storage, n_queries>(v, steps.begin, steps.end, element, end_element, weights + i * kScoreStride,
                                     values + i * v.width);
    }
  }
  for (int i = 0; i < count; i += n_queries) {
    add_values_after<Storage, n_queries>(v, common[i / n_queries], seen + i, weights + i * kScoreStride,
                                         values + i * v.width);
  }
  return count;
}

template <class Storage>
void add_all_values(const AttentionTile& tile, const SplitPanels& panels, const KeyRange* seen, KeyRange any,
                    const float* weights, float* values) {
  constexpr int chunk = kPanelsAtOnce * kPanelTokens;
  const int per_kv_head = tile.n_rows * tile.n_heads;
  const int width = padded_to_lanes(tile.head_dim);
  __builtin_memset(values, 0, static_cast<std::size_t>(tile.n_queries() * width) * sizeof(float));
  if (per_kv_head >= 2 * kValueQueries<Storage>) {
    for (int head = 0; head < tile.n_kv_heads; ++head) {
      const HeadValues v = {panels.v, head * panels.v_head_bytes, width};
      int i = head * per_kv_head;
      const int done =
          add_values_by_columns<Storage>(v, seen + i, per_kv_head, weights + i * kScoreStride, values + i * width);
      i += done;
      add_values_of_queries<Storage, kValueQueries<Storage>>(v, seen + i, per_kv_head - done,
                                                             weights + i * kScoreStride, values + i * width);
    }
    return;
  }
  for (int begin = any.begin / chunk * chunk; begin < any.end; begin += chunk) {
    KeyRange here[kTileQueries];
    for (int i = 0; i < tile.n_queries(); ++i) {
      here[i].begin = seen[i].begin > begin ? seen[i].begin : begin;
      here[i].end = seen[i].end < begin + chunk ? seen[i].end : begin + chunk;
    }
    for (int head = 0; head < tile.n_kv_heads; ++head) {
      const int i = head * per_kv_head;
      add_values_of_queries<Storage, kValueQueries<Storage>>({panels.v, head * panels.v_head_bytes, width}, here + i,
                                                             per_kv_head, weights + i * kScoreStride,
                                                             values + i * width);
    }
  }
}

}  // namespace
}  // namespace imp::cpu
