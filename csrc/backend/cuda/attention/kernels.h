// The attention kernels. Each function is one launch.
#pragma once

#include <cstddef>

#include "backend/cuda/attention/args.h"
#include "backend/cuda/device/stream.h"
#include "backend/kv_types.h"

namespace imp::cuda {

// Supports heads of up to this many elements.
constexpr int kMaxHeadDim = 256;

// Shared memory per block.
std::size_t prefill_shared_bytes(KvType type, int head_dim);
std::size_t decode_shared_bytes(KvType type, int head_dim);

// Prefill: sequences with more than one row, which have n_tiles tiles of prefill_rows() (row, head) pairs in all.
int prefill_rows(int head_dim);
void attend_many(Stream& stream, KvType type, const AttentionArgs& args, int n_tiles);

// Decode: sequences with one row. Sequences whose splits fit args.n_states write states to args.split_sums and
// args.split_values, which combine_splits() reads; others process their splits in sequence. n_blocks persistent blocks
// take the next item each.
void attend_single(Stream& stream, KvType type, const AttentionArgs& args, int n_blocks);
void combine_splits(Stream& stream, const AttentionArgs& args);

}  // namespace imp::cuda
