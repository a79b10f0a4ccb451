// Writes new keys and values to the cache, with or without rotation in the same launch.
#pragma once

#include "backend/cuda/device/stream.h"
#include "backend/cuda/inputs.h"
#include "backend/cuda/kv/kv_layer_view.h"
#include "backend/cuda/ops/rope_args.h"
#include "backend/kv_types.h"
#include "backend/rows.h"

namespace imp::cuda {

// Rows of q, k, v and angles, and the destination of k and v.
struct RopeAppendArgs {
  Rows q, k, v, angles;
  HeadNorm q_norm, k_norm;
  RopeShape rope;
  KvLayerView cache;
  SequencesOnDevice sequences;
};

void append_rows(Stream& stream, KvType type, const KvLayerView& cache, const SequencesOnDevice& sequences, Rows k,
                 Rows v);
void rope_append_rows(Stream& stream, KvType type, const RopeAppendArgs& args);

}  // namespace imp::cuda
