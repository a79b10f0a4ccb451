// The embeddings that each layer has of its own.
#include <array>
#include <cstddef>

#include "model/decoder.h"
#include "model/layer/normalize.h"

namespace imp {

// The weights of the projection's norm hold its scale.
void Decoder::embed_for_layers(const Batch& batch) {
  const LayerEmbedding& embedding = config_.layer_embedding;
  backend_.embed(batch.tokens, *weights_.layer_table, embedding.table_scale, rows_.layer_inputs);
  backend_.linear(body_.stream(), std::array{LinearTerm{weights_.layer_projection.get(), nullptr, rows_.projected}});
  const Norm of_layer = {.weight = weights_.layer_projection_norm.get(), .epsilon = embedding.norm_epsilon};
  backend_.norm_heads(rows_.projected, embedding.size, of_layer, rows_.projected);
  backend_.add(rows_.layer_inputs, rows_.projected);
}

// The stream gates the layer's own embedding of the token.
void Decoder::layer_embedding(int i) {
  const LayerWeights& w = layer_at(i).weights;
  const Rows branch = body_.branch();
  Rows own = rows_.layer_inputs;
  own.width = config_.layer_embedding.size;
  own.data += std::ptrdiff_t{i} * own.width;
  backend_.linear(body_.stream(), std::array{LinearTerm{w.embedding_gate.get(), nullptr, rows_.embedding_gate}});
  backend_.gated_activation(config_.activation, rows_.embedding_gate, own, rows_.embedding_gate);
  backend_.linear(rows_.embedding_gate, std::array{LinearTerm{w.embedding_output.get(), nullptr, branch}});
  normalize(backend_, config_, branch, w.post_embedding_norm, nullptr, branch);
}

}  // namespace imp
