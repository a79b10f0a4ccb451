// The weights of a decoder.
#pragma once

#include <vector>

#include "model/layer/layer_weights.h"

namespace imp {

struct Weights {
  Matrix embedding;    // [vocab, hidden]
  Matrix positions;    // [positions, hidden]: added to the embedding
  Matrix token_types;  // [token types, hidden]: the same
  NormWeights embedding_norm;
  // Of the embeddings of layers, for all layers side by side.
  Matrix layer_table;            // [vocab, n_layers · size]
  Matrix layer_projection;       // [n_layers · size, hidden]
  Values layer_projection_norm;  // [size]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  Matrix own_output_head;  // [vocab, hidden]; null if it is the embedding (tied)

  // Of vectors of texts.
  std::vector<BiasedMatrix> projections;
  BiasedMatrix score_dense;   // [hidden, hidden]
  BiasedMatrix score_output;  // [1, hidden]

  const Linear& output_head() const { return own_output_head ? *own_output_head : *embedding; }
};

}  // namespace imp
