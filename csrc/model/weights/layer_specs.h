// Lists the tensors of one layer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/weights/spec_list.h"

namespace imp {

class LayerSpecs {
 public:
  // Layer i, whose weights go to `layer`.
  LayerSpecs(SpecList& specs, const ModelConfig& config, const TensorNames& names, int i, LayerWeights& layer)
      : specs_(specs),
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
  void add_gated_q(const std::string& tensor, std::int64_t n_rows);
  std::string_view fused_qkv(bool of_biases) const;
  void add_qkv_biases();
  void add_qk_norms();
  void add_qkv();
  void add_linear_qkv();
  void add_alpha_and_beta();
  void add_linear_attention();
  void add_expert_matrices(std::string_view name, std::int64_t n, std::int64_t k, Stack& slot);
  void add_shared_expert();
  void add_expert_biases();
  void add_experts();
  void add_gate_and_up();
  void add_dense();
  void add_dense_beside_experts();

  SpecList& specs_;
  const ModelConfig& config_;
  const TensorNames& names_;
  const int i_;
  const LayerConfig& shape_;
  LayerWeights& layer_;
};

}  // namespace imp
