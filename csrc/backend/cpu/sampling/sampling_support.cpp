// Gathers a short list that contains all kept candidates, then cuts it exactly, in integers.
#include "backend/cpu/sampling/sampling_support.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "backend/cpu/sampling/prefix_select.h"
#include "backend/sampling_rules.h"
#include "backend/scalar_math.h"
#include "base/ceil_div.h"

namespace imp::cpu {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kOne = std::uint64_t{1} << 40;  // weight of the greatest logit

// The same order for unsigned integers.
std::uint64_t order_of(LogitKey key) {
  return static_cast<std::uint32_t>(key) ^ 0x80000000U;
}

std::uint64_t sum(const std::uint64_t* weights, std::int64_t n) {
  return std::accumulate(weights, weights + n, std::uint64_t{0});
}

// A key below that of every logit within `distance` temperatures of the greatest, under any rounding.
LogitKey key_below(float greatest, double distance, float temperature) {
  const double bound = static_cast<double>(greatest) - (distance + 0.01) * static_cast<double>(temperature);
  const double slack = 1e-6 * (std::max(bound, -bound) + static_cast<double>(std::max(greatest, -greatest)));
  if (bound - slack < -3e38) return INT32_MIN;
  return key_of(static_cast<float>(bound - slack));
}

// The list of candidates under construction.
struct Shortlist {
  const SamplingOps& ops;
  std::span<const float> logits;
  float greatest;
  float temperature;
  const SamplingScratch& scratch;
  std::int64_t n = 0;

  int vocab_size() const { return static_cast<int>(logits.size()); }

  void gather(LogitKey least) {
    n = ops.gather(logits.data(), vocab_size(), least, scratch.ids, scratch.values);
    ops.weigh(scratch.values, static_cast<int>(n), greatest, temperature, scratch.weights);
    for (std::int64_t i = 0; i < n; ++i) scratch.order[i] = order_of(key_of(scratch.values[i]));
  }

  std::uint64_t mass_of_all() const {
    ops.block_masses(logits.data(), vocab_size(), greatest, temperature, scratch.masses);
    return sum(scratch.masses, ceil_div(vocab_size(), kMassBlock));
  }

  template <int key_bytes>
  Cut cut_at_mass(std::uint64_t needed) const {
    return select_prefix<key_bytes>(
        n, [&](std::int64_t i) { return scratch.order[i]; }, [&](std::int64_t i) { return scratch.weights[i]; },
        needed);
  }

  Cut cut_at_count(std::uint64_t count) const {
    return select_prefix<4>(
        n, [&](std::int64_t i) { return scratch.order[i]; }, [](std::int64_t) { return std::uint64_t{1}; }, count);
  }

  // Cuts before the first candidate whose weight is less than `needed`.
  Cut cut_below_weight(std::uint64_t needed) const {
    Cut cut;
    for (std::int64_t i = 0; i < n; ++i) {
      if (scratch.weights[i] < needed) cut = Cut::shorter(cut, {scratch.order[i], -1});
    }
    return cut;
  }

  std::uint64_t mass_of(const Cut& cut) const {
    std::uint64_t mass = 0;
    for (std::int64_t i = 0; i < n; ++i) mass += cut.keeps(scratch.order[i], i) ? scratch.weights[i] : 0;
    return mass;
  }

  void keep(const Cut& cut) {
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (!cut.keeps(scratch.order[i], i)) continue;
      scratch.ids[kept] = scratch.ids[i];
      scratch.weights[kept] = scratch.weights[i];
      ++kept;
    }
    n = kept;
  }
};

// For top-p over all candidates: the kept prefix nearly always lies near the greatest logit.
std::uint64_t gather_for_top_p(Shortlist& list, LogitKey least, float top_p) {
  constexpr double kNear = 12;  // in temperatures: e^-12 of the greatest weight
  const std::uint64_t total = list.mass_of_all();
  const LogitKey near = std::max(least, key_below(list.greatest, kNear, list.temperature));
  list.gather(near);
  if (near > least && sum(list.scratch.weights, list.n) < share(top_p, total)) list.gather(least);
  return total;
}

// Typical-p: those nearest to the entropy first, up to typical_p of the mass. In double precision, sums by ascending
// id.
void keep_typical(Shortlist& list, float typical_p) {
  const SamplingScratch& scratch = list.scratch;
  const std::uint64_t total = sum(scratch.weights, list.n);
  list.ops.surprisals(scratch.weights, static_cast<int>(list.n), static_cast<double>(total), scratch.surprisals);
  double entropy = 0;
  for (std::int64_t i = 0; i < list.n; ++i) {
    if (scratch.weights[i] == 0) continue;
    entropy += static_cast<double>(scratch.weights[i]) / static_cast<double>(total) * scratch.surprisals[i];
  }
  for (std::int64_t i = 0; i < list.n; ++i) {
    const double distance = scratch.surprisals[i] - entropy;
    // Non-negative doubles have the order of their bits; the complement puts the smallest first. Weight zero is last.
    const auto nearness = ~std::bit_cast<std::uint64_t>(distance < 0 ? -distance : distance);
    scratch.order[i] = scratch.weights[i] == 0 ? 0 : nearness;
  }
  list.keep(list.cut_at_mass<8>(share(typical_p, total)));
}

}  // namespace

LogitKey key_of(float logit) {
  const auto word = std::bit_cast<std::int32_t>(logit);
  const std::int32_t key = word ^ (word >> 31 & 0x7FFFFFFF);
  return key == -1 ? 0 : key;
}

bool needs_chunk_keys(const SamplerParams& params, int vocab_size) {
  return active_top_k(params, vocab_size) > 0;
}

LogitKey least_key_of_top(int k, int vocab_size, const SamplingScratch& scratch) {
  const int n_chunks = ceil_div(vocab_size, kScanChunk);
  if (n_chunks < k) return INT32_MIN;
  // At least k logits are as great as the maximum of the k-th best chunk.
  const Cut cut = select_prefix<4>(
      n_chunks, [&](std::int64_t i) { return order_of(scratch.chunk_keys[i]); },
      [](std::int64_t) { return std::uint64_t{1}; }, static_cast<std::uint64_t>(k));
  return static_cast<LogitKey>(static_cast<std::uint32_t>(cut.key) ^ 0x80000000U);
}

Support choose_support(const SamplingOps& ops, std::span<const float> logits, float greatest,
                       const SamplerParams& params, const SamplingScratch& scratch) {
  Shortlist list = {ops, logits, greatest, params.temperature, scratch};
  const int top_k = active_top_k(params, list.vocab_size());
  LogitKey least = INT32_MIN;
  if (top_k > 0) least = least_key_of_top(top_k, list.vocab_size(), scratch);
  if (params.min_p > 0 && top_k == 0) {
    least = std::max(least, key_below(greatest, -log_of(static_cast<double>(params.min_p)), params.temperature));
  }
  Cut cut;
  if (params.top_p < 1 && top_k == 0) {
    const std::uint64_t needed = share(params.top_p, gather_for_top_p(list, least, params.top_p));
    // If min-p keeps fewer candidates, its cut decides.
    if (sum(scratch.weights, list.n) >= needed) cut = list.cut_at_mass<4>(needed);
  } else {
    list.gather(least);
    if (top_k > 0 && top_k < list.n) cut = list.cut_at_count(static_cast<std::uint64_t>(top_k));
    if (params.top_p < 1) cut = Cut::shorter(cut, list.cut_at_mass<4>(share(params.top_p, list.mass_of(cut))));
  }
  if (params.min_p > 0) cut = Cut::shorter(cut, list.cut_below_weight(share(params.min_p, kOne)));
  list.keep(cut);
  if (params.typical_p < 1) keep_typical(list, params.typical_p);
  const auto n = static_cast<std::size_t>(list.n);
  return {{scratch.ids, n}, {scratch.weights, n}, sum(scratch.weights, list.n)};
}

std::int32_t draw(const Support& support, std::uint64_t random) {
  const auto target = static_cast<std::uint64_t>(Wide{random} * support.total >> 64);
  std::uint64_t mass = 0;
  std::size_t i = 0;
  while ((mass += support.weights[i]) <= target) ++i;
  return support.ids[i];
}

std::int32_t draw_from_all(const SamplingOps& ops, std::span<const float> logits, float greatest, float temperature,
                           std::uint64_t random, const SamplingScratch& scratch) {
  const auto vocab_size = static_cast<int>(logits.size());
  ops.block_masses(logits.data(), vocab_size, greatest, temperature, scratch.masses);
  const std::uint64_t total = sum(scratch.masses, ceil_div(vocab_size, kMassBlock));
  const auto target = static_cast<std::uint64_t>(Wide{random} * total >> 64);
  std::uint64_t mass = 0;
  int block = 0;
  for (; mass + scratch.masses[block] <= target; ++block) mass += scratch.masses[block];
  const int first = block * kMassBlock;
  ops.weigh(logits.data() + first, std::min(kMassBlock, vocab_size - first), greatest, temperature, scratch.weights);
  int i = 0;
  while ((mass += scratch.weights[i]) <= target) ++i;
  return first + i;
}

}  // namespace imp::cpu
