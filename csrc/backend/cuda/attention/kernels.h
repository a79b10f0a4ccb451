// The kernels of attention, each one launch: what Attention calls.
#pragma once

#include <cstddef>

#include "backend/cuda/attention/args.h"
#include "backend/cuda/device/stream.h"
#include "tensor/dtype.h"

namespace imp::cuda {

// Heads of up to this many elements.
constexpr int kMostHeadDim = 256;

// Shared memory that a block asks for.
std::size_t prefill_shared_bytes(DType type, int head_dim);
std::size_t decode_shared_bytes(DType type, int head_dim);

// Of the sequences with more than one row, which have n_tiles of prefill_rows() (row, head) pairs in all.
int prefill_rows(int head_dim);
void attend_many(Stream& stream, DType type, const AttentionArgs& args, int n_tiles);

// Of the sequences with one row: of those whose splits args.n_states has room for every split apart, to args.split_sums
// and args.split_values, which combine_splits() then reads; of others one after the other. Of n_blocks blocks each
// takes what comes next.
void attend_single(Stream& stream, DType type, const AttentionArgs& args, int n_blocks);
void combine_splits(Stream& stream, const AttentionArgs& args);

}  // namespace imp::cuda
