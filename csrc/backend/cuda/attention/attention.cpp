// Sizes the scratch of attention and says what is launched for a batch.
#include "backend/cuda/attention/attention.h"

#include <algorithm>
#include <numbers>
#include <string>

#include "backend/cuda/attention/kernels.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

// With more sequences than these there is work for all processors without dividing it by splits.
constexpr int kMostDivided = 64;
// Of a sequence: what it costs to put them together, and their scratch, stay small.
constexpr int kMostSplits = 64;
constexpr int kLeastSplitTokens = 256;
constexpr int kBlocksPerProcessor = 2;

int divided_up(int n, int by) {
  return (n + by - 1) / by;
}

int split_tokens_for(int max_context) {
  return kLeastSplitTokens * std::max(1, divided_up(max_context, kMostSplits * kLeastSplitTokens));
}

void require(bool holds, const char* what, int found, const std::string& expected) {
  if (holds) return;
  throw InvalidArgument(Reason::FIELD_INVALID,
                        std::string("attention ") + what + ": " + std::to_string(found) + ", expected " + expected);
}

int group_of(const AttentionParams& params) {
  return params.n_heads / params.n_kv_heads;
}

// Blocks that stay, for as many sequences: no more than there can be items for them.
int decode_blocks(const DeviceCaps& caps, const AttentionArgs& args, bool divided) {
  constexpr int kItemHeads = 16;
  const std::int64_t items = std::int64_t{args.sequences.n_sequences} * (divided ? kMostSplits : 1) *
                             args.cache.n_kv_heads * divided_up(args.group, kItemHeads);
  return static_cast<int>(std::min<std::int64_t>(items, kBlocksPerProcessor * std::max(1, caps.n_processors)));
}

int n_tiles(std::span<const SequenceRows> sequences, int group, int tile_rows) {
  int n = 0;
  for (const SequenceRows& sequence : sequences) {
    if (sequence.n_rows > 1) n += divided_up(sequence.n_rows * group, tile_rows);
  }
  return n;
}

}  // namespace

void Attention::require_served(const AttentionParams& params) const {
  require(params.n_kv_heads > 0 && params.n_heads % params.n_kv_heads == 0, "n_heads", params.n_heads,
          "a multiple of n_kv_heads");
  require(params.head_dim > 0 && params.head_dim % 8 == 0, "head_dim", params.head_dim, "a multiple of 8");
  require(params.head_dim <= kMostHeadDim, "head_dim", params.head_dim,
          "at most " + std::to_string(kMostHeadDim) + " on cuda");
  for (const DType type : {DType::F16, DType::Q8_0}) {
    const std::size_t shared =
        std::max(prefill_shared_bytes(type, params.head_dim), decode_shared_bytes(type, params.head_dim));
    require(shared <= caps_.shared_bytes, "head_dim", params.head_dim,
            "one for which a block needs no more shared memory than the " + std::to_string(caps_.shared_bytes) +
                " bytes of this GPU, not " + std::to_string(shared));
  }
}

Attention::Reserved Attention::reserved_for(int max_rows, int max_context, const AttentionParams& largest) {
  return {.sequences = std::min(max_rows, kMostDivided),
          .context = max_context,
          .heads = largest.n_heads,
          .head_dim = largest.head_dim};
}

std::size_t Attention::bytes_of(const Reserved& reserved) {
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  const int splits = divided_up(reserved.context, split_tokens_for(reserved.context));
  return size(reserved.sequences) * size(splits) * size(reserved.heads) * size(reserved.head_dim + 2) * sizeof(float);
}

std::size_t Attention::scratch_bytes(int max_rows, int max_context, const AttentionParams& largest) const {
  require_served(largest);
  return bytes_of(reserved_for(max_rows, max_context, largest));
}

std::size_t Attention::scratch_bytes() const noexcept {
  return bytes_of(reserved_);
}

void Attention::reserve(int max_rows, int max_context, const AttentionParams& largest) {
  require_served(largest);
  const Reserved wanted = reserved_for(max_rows, max_context, largest);
  const Reserved both = {.sequences = std::max(reserved_.sequences, wanted.sequences),
                         .context = std::max(reserved_.context, wanted.context),
                         .heads = std::max(reserved_.heads, wanted.heads),
                         .head_dim = std::max(reserved_.head_dim, wanted.head_dim)};
  if (bytes_of(both) > bytes_of(reserved_)) scratch_ = allocate_on_device(bytes_of(both));
  reserved_ = both;
}

#if IMP_TESTING
void Attention::fill_scratch(std::uint8_t value) {
  fill(stream_, scratch_.get(), value, scratch_bytes());
}
#endif

void Attention::run(const CudaKvPool& pool, int layer, std::span<const SequenceRows> sequences,
                    const SequencesOnDevice& on_device, const AttentionParams& params, Rows q, Rows out) {
  const DType type = pool.geometry().dtype;
  AttentionArgs args = {.cache = pool.places(layer),
                        .sequences = on_device,
                        .q = q,
                        .out = out,
                        .n_heads = params.n_heads,
                        .group = group_of(params),
                        .q_factor = params.scale * std::numbers::log2e_v<float>,
                        .window = params.window,
                        .split_tokens = split_tokens_for(reserved_.context)};
  if (params.soft_cap > 0) {
    args.q_factor *= 2 / params.soft_cap;
    args.soft_cap = params.soft_cap * std::numbers::log2e_v<float>;
  }
  const auto is_single = [](const SequenceRows& sequence) { return sequence.n_rows == 1; };
  const auto n_single = static_cast<int>(std::ranges::count_if(sequences, is_single));
  if (n_single > 0) {
    const bool divided = n_single <= reserved_.sequences;
    const int splits = divided_up(reserved_.context, args.split_tokens);
    args.split_sums = reinterpret_cast<float*>(scratch_.get());
    args.split_values = args.split_sums + std::int64_t{2} * reserved_.sequences * splits * params.n_heads;
    attend_single(stream_, type, args, divided, decode_blocks(caps_, args, divided));
    if (divided) combine_splits(stream_, args);
  }
  const int tiles = n_tiles(sequences, args.group, prefill_rows(params.head_dim));
  if (tiles > 0) attend_many(stream_, type, args, tiles);
}

}  // namespace imp::cuda
