// Ranks chunks by their mean importance.
#include "engine/sparse/chunk_selection.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/ceil_div.h"
#include "base/error.h"

namespace imp {
namespace {

// Rounded up.
int share_of(int n, int share) noexcept {
  return static_cast<int>(ceil_div(static_cast<std::int64_t>(n) * share, std::int64_t{kKeepAll}));
}

int least_of(int n, int keep) noexcept {
  return std::max(1, share_of(n, keep));
}

// The centre of one of n_strata equal strata.
int centre_of(int stratum, int n_strata, int n_chunks) noexcept {
  return static_cast<int>((2 * std::int64_t{stratum} + 1) * n_chunks / (2 * std::int64_t{n_strata}));
}

// The part of a list that belongs to a chunk; the last chunk may be shorter.
template <class T>
std::span<const T> chunk_of(std::span<const T> list, int chunk) {
  const auto first = static_cast<std::size_t>(chunk) * kSelectionChunk;
  return list.subspan(first, std::min<std::size_t>(kSelectionChunk, list.size() - first));
}

double mean_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

bool always_stays(std::span<const std::int32_t> tokens, int chunk, int n_chunks, const SelectionRules& rules) {
  if (chunk < rules.anchors || chunk >= n_chunks - rules.anchors) return true;
  return std::ranges::any_of(chunk_of(tokens, chunk), [&](std::int32_t token) {
    return std::ranges::binary_search(rules.control_tokens, token);
  });
}

// All chunks by falling mean importance, equal ones by index.
std::vector<int> ranked(std::span<const float> importance, int n_chunks) {
  std::vector<double> means(static_cast<std::size_t>(n_chunks));
  for (int i = 0; i < n_chunks; ++i) means[static_cast<std::size_t>(i)] = mean_of(chunk_of(importance, i));
  std::vector<int> ranks(static_cast<std::size_t>(n_chunks));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::ranges::stable_sort(
      ranks, [&](int a, int b) { return means[static_cast<std::size_t>(a)] > means[static_cast<std::size_t>(b)]; });
  return ranks;
}

}  // namespace

int least_selected(int n_tokens, int keep) noexcept {
  return least_of(n_tokens, keep);
}

std::vector<std::int32_t> select_tokens(std::span<const std::int32_t> tokens, std::span<const float> importance,
                                        const SelectionRules& rules) {
  IMP_CHECK(!tokens.empty() && importance.size() == tokens.size() && rules.anchors > 0);
  const auto n_tokens = static_cast<int>(tokens.size());
  const int n_chunks = ceil_div(n_tokens, kSelectionChunk);
  std::vector<bool> is_kept(static_cast<std::size_t>(n_chunks));
  int n_kept_chunks = 0, n_kept = 0;
  const auto keep = [&](int chunk) {
    if (is_kept[static_cast<std::size_t>(chunk)]) return;
    is_kept[static_cast<std::size_t>(chunk)] = true;
    ++n_kept_chunks;
    n_kept += static_cast<int>(chunk_of(tokens, chunk).size());
  };
  for (int chunk = 0; chunk < n_chunks; ++chunk) {
    if (always_stays(tokens, chunk, n_chunks, rules)) keep(chunk);
  }
  const int n_strata = share_of(n_chunks, rules.backbone);
  for (int i = 0; i < n_strata; ++i) keep(centre_of(i, n_strata, n_chunks));
  for (const int chunk : ranked(importance, n_chunks)) {
    if (n_kept_chunks >= least_of(n_chunks, rules.keep) && n_kept >= least_of(n_tokens, rules.keep)) break;
    keep(chunk);
  }
  std::vector<std::int32_t> kept;
  kept.reserve(static_cast<std::size_t>(n_kept));
  for (int i = 0; i < n_tokens; ++i) {
    if (is_kept[static_cast<std::size_t>(i / kSelectionChunk)]) kept.push_back(i);
  }
  return kept;
}

}  // namespace imp
