// Runs the inner loop of every op in the table of each instruction set. All tables must give equal bits.
#include <algorithm>
#include <bit>

#include "backend/attention.h"
#include "backend/cpu/attention/split_attention.h"
#include "backend/cpu/ops/ops_tables.h"
#include "bits.h"

namespace proof {

namespace {

using namespace imp;
using namespace imp::cpu;

using Floats = std::vector<float>;

Floats random_floats(Random& random, int n, float size) {
  Floats values(static_cast<std::size_t>(n));
  for (float& value : values) value = random.uniform() * size;
  return values;
}

Floats extreme_floats(Random& random, int n) {
  Floats values(static_cast<std::size_t>(n));
  for (float& value : values) value = random.extreme();
  return values;
}

// The results of one table by name. Each call starts from the same random numbers.
class Results {
 public:
  void put(std::string name, std::span<const float> values) { found_.emplace_back(std::move(name), words_of(values)); }
  template <class Whole>
  void put_whole(std::string name, std::span<const Whole> values) {
    std::vector<std::uint32_t> words;
    for (const Whole value : values) {
      words.push_back(static_cast<std::uint32_t>(value));
      if constexpr (sizeof(Whole) > 4) words.push_back(static_cast<std::uint32_t>(value >> 32));
    }
    found_.emplace_back(std::move(name), std::move(words));
  }
  const std::vector<std::pair<std::string, std::vector<std::uint32_t>>>& all() const { return found_; }

 private:
  std::vector<std::pair<std::string, std::vector<std::uint32_t>>> found_;
};

void put_elementwise(const CpuOps& ops, Results& results) {
  constexpr int n = 8 * 1024 + 5;
  Random random(21);
  for (const bool is_extreme : {false, true}) {
    const std::string kind = is_extreme ? " of anything" : "";
    const Floats x = is_extreme ? extreme_floats(random, n) : random_floats(random, n, 12);
    const Floats y = is_extreme ? extreme_floats(random, n) : random_floats(random, n, 3);
    Floats out(n);
    ops.silu(x.data(), y.data(), n, out.data());
    results.put("silu" + kind, out);
    ops.gelu_tanh(x.data(), y.data(), n, out.data());
    results.put("gelu_tanh" + kind, out);
    ops.clamped_silu(x.data(), y.data(), n, 2.5F, 1.702F, out.data());
    results.put("clamped_silu" + kind, out);
    out = x;
    ops.add(out.data(), y.data(), n);
    results.put("add" + kind, out);
    out = x;
    ops.scale(out.data(), n, 0.37F);
    results.put("scale" + kind, out);
    out = x;
    ops.soft_cap(out.data(), n, 5.0F);
    results.put("soft_cap" + kind, out);
    ops.rms_norm(x.data(), y.data(), n, 1e-6F, out.data());
    results.put("rms_norm" + kind, out);
    ops.layer_norm(x.data(), y.data(), x.data(), n, 1e-6F, out.data());
    results.put("layer_norm" + kind, out);
    out = x;
    ops.plain_gelu_tanh(out.data(), n);
    results.put("plain_gelu_tanh" + kind, out);
    out = x;
    ops.relu_squared(out.data(), n);
    results.put("relu_squared" + kind, out);
    out = x;
    ops.xielu(out.data(), n, {0.8F, 0.7F, 0.5F, -1e-6F});
    results.put("xielu" + kind, out);
  }
}

void put_rope(const CpuOps& ops, Results& results) {
  constexpr int kPairs = 37;
  Random random(22);
  double frequencies[kPairs];
  for (double& frequency : frequencies) frequency = static_cast<double>(random.next() >> 11) * 0x1p-53;
  for (const std::int32_t position : {0, 1, 4095, 1000003}) {
    Floats angles(2 * kPairs);
    ops.rope_angles(position, frequencies, kPairs, 1.25F, angles.data());
    results.put("rope_angles at " + std::to_string(position), angles);
    Floats head = random_floats(random, 2 * kPairs, 3);
    ops.rope_adjacent(head.data(), angles.data(), kPairs);
    results.put("rope_adjacent at " + std::to_string(position), head);
    ops.rope_halves(head.data(), angles.data(), kPairs);
    results.put("rope_halves at " + std::to_string(position), head);
  }
  constexpr std::int32_t kPositions[] = {1000003, 3, 4095};
  std::uint8_t planes[kPairs];
  for (int i = 0; i < kPairs; ++i) planes[i] = static_cast<std::uint8_t>(i % 3);
  Floats angles(2 * kPairs);
  ops.rope_planes({kPositions, 1, planes}, frequencies, kPairs, 1.25F, angles.data());
  results.put("rope_planes", angles);
}

// Attention of three rows of a sequence: four query heads, two KV heads, and all splits that hold their keys.
template <int kHeadDim>
void put_attention(const CpuOps& ops, KvTypes types, const std::string& name, int window, float soft_cap,
                   Results& results) {
  const KeyOps& keys = ops.keys_of(types.k);
  const ValueOps& of_values = ops.values_of(types.v);
  constexpr int kWidth = padded_to_lanes(kHeadDim), kKvHeads = 2, kHeads = 2, kTokenRows = 3;
  constexpr int kFirst = 601, kTokens = kFirst + kTokenRows, kQueryWidth = kKvHeads * kHeads * kHeadDim;
  constexpr int kPanels = (kTokens + kPanelTokens - 1) / kPanelTokens;
  constexpr std::size_t kPanelFloats = std::size_t{kPanelTokens} * kWidth;
  Random random(23);
  Floats k_cache(kPanels * kKvHeads * kPanelFloats), v_cache(k_cache.size());
  const auto panel = [&](Floats& cache, int index, int head) {
    return cache.data() + static_cast<std::size_t>(index * kKvHeads + head) * kPanelFloats;
  };
  // Appends tokens one by one, in runs, and by panels.
  for (int token = 0, n = 1; token < kTokens; token += n) {
    n = token % kPanelTokens == 0 ? kPanelTokens : token % kPanelTokens == 1 ? 5 : 1;
    n = std::min({n, kPanelTokens - token % kPanelTokens, kTokens - token, token < kPanelTokens ? token % 7 + 1 : n});
    for (int head = 0; head < kKvHeads; ++head) {
      const Floats k = random_floats(random, n * kHeadDim, 2), v = random_floats(random, n * kHeadDim, 2);
      keys.append({k.data(), kHeadDim, kHeadDim, token % kPanelTokens, n}, panel(k_cache, token / kPanelTokens, head));
      of_values.append({v.data(), kHeadDim, kHeadDim, token % kPanelTokens, n},
                       panel(v_cache, token / kPanelTokens, head));
    }
  }
  const Floats q = random_floats(random, kTokenRows * kQueryWidth, 2);
  AttentionTile tile{q.data(), kQueryWidth, kTokenRows, kKvHeads, kHeads,  kFirst, kHeadDim,
                     0.3F,     soft_cap,    window,     nullptr,  nullptr, 0,      nullptr};
  Floats scores(kTileQueries * kScoreStride), queries(kTileQueries * kWidth), greatest[2], sums[2], values[2];
  AttentionState states[2];
  for (int i = 0; i < 2; ++i) {
    greatest[i].resize(kTileQueries);
    sums[i].resize(kTileQueries);
    values[i].resize(kTileQueries * kWidth);
    states[i] = {greatest[i].data(), sums[i].data(), values[i].data()};
  }
  Floats out(kTokenRows * kQueryWidth);
  const auto attend = [&] {
    keys.pack_queries(tile, queries.data());
    for (int split = 0; split < kTokens; split += kSplitTokens) {
      SplitPanels panels{};
      for (int i = 0; i < kSplitPanels && split / kPanelTokens + i < kPanels; ++i) {
        panels.k[i] = panel(k_cache, split / kPanelTokens + i, 0);
        panels.v[i] = panel(v_cache, split / kPanelTokens + i, 0);
      }
      panels.k_head_bytes = panels.v_head_bytes = kPanelFloats * sizeof(float);
      panels.first_position = split;
      attend_split(keys, of_values, tile, panels, {scores.data(), queries.data()}, states[0]);
      ops.merge(tile, split, states[0], states[1]);
    }
    ops.finish(tile, states[1], out.data(), kQueryWidth);
  };
  attend();
  results.put("attention" + name, out);
  const Floats sinks = random_floats(random, kKvHeads * kHeads, 2);
  tile.sinks = sinks.data();
  ops.finish(tile, states[1], out.data(), kQueryWidth);
  results.put("attention with sinks" + name, out);
  if (traits(types.v).is_rotated) {
    ops.rotate_back(out.data(), kHeadDim);
    results.put("rotated back" + name, out);
  }
  constexpr std::int32_t kEnds[kTokenRows] = {kTokens, kTokens, kTokens};
  tile.ends = kEnds;
  tile.ahead = kAllAhead;
  attend();
  results.put("attention ahead" + name, out);
}

void put_sampling(const SamplingOps& ops, Results& results) {
  constexpr int n = 5003;
  Random random(24);
  const Floats logits = random_floats(random, n, 20);
  std::vector<LogitKey> greatest(n / kScanChunk + 1);
  const RowScan scan = ops.scan(logits.data(), n, greatest.data());
  results.put_whole<std::int32_t>("scan", std::vector<std::int32_t>{scan.greatest, scan.index, scan.finite});
  results.put_whole<std::int32_t>("scan's chunks", greatest);
  std::vector<std::int32_t> ids(n);
  Floats chosen(n);
  ids.resize(
      static_cast<std::size_t>(ops.gather(logits.data(), n, greatest.front() - (1 << 22), ids.data(), chosen.data())));
  chosen.resize(ids.size());
  results.put_whole<std::int32_t>("gather", ids);
  results.put("gather's values", chosen);
  std::vector<std::uint64_t> weights(n), masses(n / kMassBlock + 1);
  ops.weigh(logits.data(), n, logits[static_cast<std::size_t>(scan.index)], 0.7F, weights.data());
  results.put_whole<std::uint64_t>("weigh", weights);
  ops.block_masses(logits.data(), n, logits[static_cast<std::size_t>(scan.index)], 0.7F, masses.data());
  results.put_whole<std::uint64_t>("block_masses", masses);
  for (std::uint64_t& weight : weights) weight += 1;
  std::vector<double> surprisals(n);
  ops.surprisals(weights.data(), n, 0x1p45, surprisals.data());
  std::vector<std::uint64_t> words(n);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::bit_cast<std::uint64_t>(surprisals[i]);
  results.put_whole<std::uint64_t>("surprisals", words);
}

Results results_of(const CpuOps& ops) {
  Results results;
  put_elementwise(ops, results);
  put_rope(ops, results);
  for (const KvType type : {KvType::f32, KvType::f16, KvType::bf16}) {
    const std::string name = " over " + std::string(traits(type).name);
    put_attention<40>(ops, {type, type}, name, 0, 0, results);
    put_attention<40>(ops, {type, type}, name + " in a window", 101, 0, results);
    put_attention<40>(ops, {type, type}, name + ", capped", 0, 4, results);
  }
  const auto put_quantized = [&]<int kHeadDim>(KvTypes types) {
    const std::string name = " over " + text_of(types);
    put_attention<kHeadDim>(ops, types, name, 0, 0, results);
    put_attention<kHeadDim>(ops, types, name + " in a window, capped", 101, 4, results);
  };
  put_quantized.operator()<64>({KvType::q8_0, KvType::q8_0});
  put_quantized.operator()<128>({KvType::rot4, KvType::rot4});
  put_quantized.operator()<128>({KvType::rot3, KvType::rot3});
  put_quantized.operator()<96>({KvType::rot2, KvType::rot2});
  put_quantized.operator()<64>({KvType::rot8, KvType::rot8});
  put_quantized.operator()<96>({KvType::q8_0, KvType::rot4});
  put_sampling(ops.sampling, results);
  return results;
}

}  // namespace

void check_ops() {
  const std::span<const OpsTable> tables = ops_tables();
  const Results expected = results_of(*tables.back().ops);
  const CpuFeatures here = detect_cpu_features();
  for (const OpsTable& table : tables) {
    if (!here.includes(table.needs)) continue;
    const Results found = results_of(*table.ops);
    for (std::size_t i = 0; i < expected.all().size(); ++i) {
      const auto& [name, words] = expected.all()[i];
      require_equal(std::string(table.isa) + ", " + name, found.all()[i].second, words);
    }
  }
  for (const auto& [name, words] : expected.all()) print_digest("ops: " + name, words);
}

}  // namespace proof
