// What the kernels of attention are told.
#pragma once

#include "backend/cuda/inputs.h"
#include "backend/cuda/kv/kv_places.h"
#include "backend/rows.h"

namespace imp::cuda {

// Keys that are worked on together, from multiples of it on: a state of each split, and of them one in ascending order.
constexpr int kSplitTokens = 256;

struct AttentionArgs {
  KvPlaces cache;
  SequencesOnDevice sequences;
  Rows q, out;  // [rows, n_heads · head_dim]
  int n_heads = 0;
  int group = 0;  // query heads of a kv head
  // Scores are of weights with the base 2. Of query times q_factor times key: the score itself, or where soft_cap is
  // not 0, an x whose score is soft_cap · tanh(x · ln 2 / 2).
  float q_factor = 0;
  float soft_cap = 0;
  int window = 0;  // 0: all
  // States of splits that are worked on apart, by split and head: greatest score and sum of weights
  // [n_states][n_heads][2], and sums of weighted values [n_states][n_heads][head_dim].
  int n_states = 0;
  float* split_sums = nullptr;
  float* split_values = nullptr;
};

}  // namespace imp::cuda
