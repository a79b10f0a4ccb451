// Lists the tensors of one layer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/place_list.h"

namespace imp {

class LayerPlaces {
 public:
  // Layer i, whose weights go to `layer`.
  LayerPlaces(PlaceList& places, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer)
      : places_(places),
        config_(config),
        names_(names),
        i_(i),
        shape_(config.layers[static_cast<std::size_t>(i)]),
        layer_(layer) {}
  // Every tensor of the layer, in the order of use.
  void add_all();

 private:
  void add_attention();
  void add_feed_forward();
  void add_embedding();
  RowOrder rotated_order() const;
  void place_gated_q(const std::string& tensor, std::int64_t n_rows);
  void place_qkv_biases();
  void place_qk_norms();
  void place_qkv();
  void place_linear_qkv();
  void place_alpha_and_beta();
  void place_linear_attention();
  void add_expert_matrices(std::string_view name, std::int64_t n, std::int64_t k, Stack& slot);
  void place_shared_expert();
  void place_expert_biases();
  void place_experts();
  void place_gate_and_up();
  void place_dense();
  void place_dense_beside_experts();

  PlaceList& places_;
  const ModelConfig& config_;
  const TensorNames& names_;
  const int i_;
  const LayerConfig& shape_;
  LayerWeights& layer_;
};

}  // namespace imp
