// The embeddings that each layer has of its own.
#include <array>
#include <cstddef>

#include "model/decoder.h"

namespace imp {
// The weights of the projection's norm hold its scale.
void Decoder::embed_for_layers(const Batch& batch) {
  const LayerEmbedding& embedding = config_.layer_embedding;
  backend_.embed(batch.tokens, *weights_.layer_table, embedding.table_scale, layer_inputs_);
  backend_.linear(x_, std::array{LinearTerm{weights_.layer_projection.get(), nullptr, projected_}});
  const Norm of_layer = {.weight = weights_.layer_projection_norm.get(), .epsilon = embedding.norm_epsilon};
  backend_.norm_heads(projected_, embedding.size, of_layer, projected_);
  backend_.add(layer_inputs_, projected_);
}

// The stream gates the layer's own embedding of the token.
void Decoder::layer_embedding(int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  Rows own = layer_inputs_;
  own.width = config_.layer_embedding.size;
  own.data += std::ptrdiff_t{i} * own.width;
  backend_.linear(x_, std::array{LinearTerm{w.embedding_gate.get(), nullptr, embedding_gate_}});
  backend_.gated_activation(config_.activation, embedding_gate_, own, embedding_gate_);
  backend_.linear(embedding_gate_, std::array{LinearTerm{w.embedding_output.get(), nullptr, branch_}});
  normalize(branch_, w.post_embedding_norm, nullptr, branch_);
}

}  // namespace imp
