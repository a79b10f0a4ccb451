// The arguments of the attention kernels.
#pragma once

#include "backend/attention_splits.h"
#include "backend/cuda/inputs.h"
#include "backend/cuda/kv/kv_layer_view.h"
#include "backend/rows.h"

namespace imp::cuda {

struct AttentionArgs {
  KvLayerView cache;
  SequencesOnDevice sequences;
  Rows q, out;  // [rows, n_heads · head_dim]
  int n_heads = 0;
  int group = 0;  // query heads per kv head
  // The softmax uses base 2. With x = (query · q_factor) · key, the score is x, or soft_cap · tanh(x · ln 2 / 2) if
  // soft_cap is not 0.
  float q_factor = 0;
  float soft_cap = 0;
  int window = 0;  // 0: all
  // States of splits that are processed in parallel (split-K), by split and head: greatest score and sum of weights
  // [n_states][n_heads][2], and sums of weighted values [n_states][n_heads][head_dim].
  int n_states = 0;
  float* split_sums = nullptr;
  float* split_values = nullptr;
};

}  // namespace imp::cuda
