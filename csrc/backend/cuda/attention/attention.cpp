// Sizes the scratch of attention and launches its kernels for a batch.
#include "backend/cuda/attention/attention.h"

#include <algorithm>
#include <numbers>
#include <string>

#include "backend/cuda/attention/kernels.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

constexpr int kBlocksPerProcessor = 2;
// The most memory for the partial states of splits. For 64 heads of 128 elements, 128 MiB hold 4032 states, enough for
// a million tokens.
constexpr std::size_t kMaxBytes = std::size_t{128} << 20;
constexpr int kMaxStates = 1 << 15;  // sums over 65535 sequences stay below 2^31

void require(bool holds, const char* what, int found, const std::string& expected) {
  if (holds) return;
  throw FieldInvalid(std::string("attention ") + what, std::to_string(found) + ", expected " + expected);
}

int group_of(const AttentionParams& params) {
  return params.n_heads / params.n_kv_heads;
}

// Persistent blocks for that many sequences: no more than there can be work items.
int decode_blocks(const DeviceCaps& caps, const AttentionArgs& args, int max_context) {
  constexpr int kItemHeads = 16;
  const std::int64_t n = args.sequences.n_sequences;
  const std::int64_t works = std::min(n * std::max(1, ceil_div(max_context, kSplitTokens)), n + args.n_states);
  const std::int64_t items = works * args.cache.n_kv_heads * ceil_div(args.group, kItemHeads);
  return static_cast<int>(std::min<std::int64_t>(items, kBlocksPerProcessor * std::max(1, caps.n_processors)));
}

int n_tiles(std::span<const SequenceRows> sequences, int group, int tile_rows) {
  int n = 0;
  for (const SequenceRows& sequence : sequences) {
    if (sequence.n_rows > 1) n += ceil_div(sequence.n_rows * group, tile_rows);
  }
  return n;
}

}  // namespace

void Attention::require_supported(const AttentionParams& params) {
  require(params.n_kv_heads > 0 && params.n_heads > 0 && params.n_heads % params.n_kv_heads == 0, "n_heads",
          params.n_heads, "a multiple of n_kv_heads");
  require(params.head_dim > 0 && params.head_dim % 8 == 0, "head_dim", params.head_dim, "a multiple of 8");
  require(params.head_dim <= kMaxHeadDim, "head_dim", params.head_dim,
          "at most " + std::to_string(kMaxHeadDim) + " on cuda");
}

void Attention::require_supported(const KvGeometry& cache) const {
  const int head_dim = cache.layers.front().head_dim;
  const KvType type = cache.layers.front().types.k;
  const std::size_t shared = std::max(prefill_shared_bytes(type, head_dim), decode_shared_bytes(type, head_dim));
  require(shared <= caps_.shared_bytes, "head_dim", head_dim,
          "one for which a block needs no more shared memory over a cache of " + std::string(traits(type).name) +
              " than the " + std::to_string(caps_.shared_bytes) + " bytes of this GPU, not " + std::to_string(shared));
}

std::size_t Attention::Reserved::state_bytes() const {
  return static_cast<std::size_t>(heads) * static_cast<std::size_t>(head_dim + 2) * sizeof(float);
}

int Attention::Reserved::n_states() const {
  const int splits = ceil_div(context, kSplitTokens);
  if (splits < 2) return 0;
  const auto most = static_cast<std::int64_t>(kMaxBytes / state_bytes());
  return static_cast<int>(std::min({std::int64_t{sequences} * splits, most, std::int64_t{kMaxStates}}));
}

std::size_t Attention::scratch_bytes(int max_sequences, int max_context, const AttentionParams& largest) const {
  require_supported(largest);
  return Reserved{max_sequences, max_context, largest.n_heads, largest.head_dim}.n_bytes();
}

void Attention::reserve(int max_sequences, int max_context, const AttentionParams& largest) {
  require_supported(largest);
  const Reserved both = {.sequences = std::max(reserved_.sequences, max_sequences),
                         .context = std::max(reserved_.context, max_context),
                         .heads = std::max(reserved_.heads, largest.n_heads),
                         .head_dim = std::max(reserved_.head_dim, largest.head_dim)};
  if (both.n_bytes() > scratch_bytes_) {
    scratch_ = allocate_on_device(both.n_bytes());
    scratch_bytes_ = both.n_bytes();
  }
  reserved_ = both;
}

void Attention::run(const CudaKvPool& pool, int layer, std::span<const SequenceRows> sequences,
                    const SequencesOnDevice& on_device, const AttentionParams& params, Rows q, Rows out) {
  // Only sequences whose prompts were scored have starts, and no kernel scores prompts.
  IMP_CHECK(std::ranges::all_of(sequences, [](const SequenceRows& sequence) { return sequence.starts.empty(); }));
  const KvType type = pool.type();
  AttentionArgs args = {.cache = pool.layer_view(layer),
                        .sequences = on_device,
                        .q = q,
                        .out = out,
                        .n_heads = params.n_heads,
                        .group = group_of(params),
                        .q_factor = params.scale * std::numbers::log2e_v<float>,
                        .window = params.window};
  if (params.soft_cap > 0) {
    args.q_factor *= 2 / params.soft_cap;
    args.soft_cap = params.soft_cap * std::numbers::log2e_v<float>;
  }
  const auto is_single = [](const SequenceRows& sequence) { return sequence.n_rows == 1; };
  const auto n_single = static_cast<int>(std::ranges::count_if(sequences, is_single));
  if (n_single > 0) {
    args.n_states = reserved_.n_states();
    args.split_values = reinterpret_cast<float*>(scratch_.get());
    args.split_sums = args.split_values + std::int64_t{args.n_states} * params.n_heads * params.head_dim;
    attend_single(stream_, type, args, decode_blocks(caps_, args, reserved_.context));
    if (args.n_states > 0) combine_splits(stream_, args);
  }
  const int tiles = n_tiles(sequences, args.group, prefill_rows(params.head_dim));
  if (tiles > 0) attend_many(stream_, type, args, tiles);
}

}  // namespace imp::cuda
