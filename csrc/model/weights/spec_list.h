// Collects the tensors of a model: one call for each weight, in the order of use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/weights/weight_specs.h"

namespace imp {

class SpecList {
 public:
  SpecList(const ModelFile& file, const ModelConfig& config, const TensorNames& names)
      : file_(file), config_(config), names_(names) {}
  bool has(const std::string& tensor) const { return file_.find(tensor) != nullptr; }
  void matrix(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot, RowOrder order = RowOrder::file) {
    all_.push_back({.tensor = std::move(tensor), .n = n, .k = k, .slot = &slot, .order = order});
  }
  // A convolution over squares of pixels of three colours, as a matrix of their products.
  void convolution(std::string tensor, std::int64_t n, std::int64_t side, Matrix& slot, Frames frames) {
    matrix(std::move(tensor), n, 3 * side * side, slot);
    WeightSpec& spec = all_.back();
    spec.row_dims = frames.in_row == 1 ? std::vector{side, side, std::int64_t{3}}
                                       : std::vector{side, side, std::int64_t{frames.in_row}, std::int64_t{3}};
    spec.frames = std::move(frames);
  }
  // The same product, of squares whose pixels have their three colours side by side.
  void pixels(std::string tensor, std::int64_t n, std::int64_t side, Matrix& slot) {
    matrix(std::move(tensor), n, 3 * side * side, slot);
    all_.back().in_turn = 3;
  }
  // A product whose tensor is stored [k, n].
  void transposed(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot) {
    matrix(std::move(tensor), n, k, slot);
    all_.back().form = StackForm::columns;
  }
  void experts(std::string tensor, std::int64_t n, std::int64_t k, int n_experts, Stack& slot) {
    all_.push_back({.tensor = std::move(tensor),
                    .use = WeightUse::expert,
                    .n = n,
                    .k = k,
                    .slot = &slot,
                    .n_matrices = n_experts,
                    .form = names_.stack_form});
  }
  void expert(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::expert, .n = n, .k = k, .slot = &slot});
  }
  void output_head(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::output_head, .n = n, .k = k, .slot = &slot});
  }
  void table(std::string tensor, std::int64_t n, std::int64_t k, Matrix& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::lookup, .n = n, .k = k, .slot = &slot});
  }
  // Tables in one tensor.
  void tables(std::string tensor, std::int64_t n, std::int64_t k, int n_tables, Stack& slot) {
    all_.push_back(
        {.tensor = std::move(tensor), .use = WeightUse::lookup, .n = n, .k = k, .slot = &slot, .n_matrices = n_tables});
  }
  void host_table(std::string tensor, std::int64_t n, std::int64_t k, HostTable& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::vector, .n = n, .k = k, .slot = &slot});
  }
  // The last `n_specs` matrices are the last parts of one tensor, one above the other from `first_row` on.
  void stack_last(std::size_t n_specs, std::int64_t first_row = 0) {
    std::int64_t n_rows = first_row;
    for (std::size_t i = all_.size() - n_specs; i < all_.size(); ++i) {
      all_[i].first_row = n_rows;
      n_rows += all_[i].n;
    }
    for (std::size_t i = all_.size() - n_specs; i < all_.size(); ++i) all_[i].tensor_rows = n_rows;
  }
  // Makes the last matrix a part of a tensor with tensor_rows rows: groups of rows from `first_row` on.
  void group_last(std::int64_t first_row, std::int64_t tensor_rows, const RowGroups& groups) {
    all_.back().first_row = first_row;
    all_.back().tensor_rows = tensor_rows;
    all_.back().groups = groups;
  }
  // Combines the last two matrices, gate and up of experts, into one tensor. Their rows may alternate.
  void join_gate_and_up() {
    stack_last(2);
    if (!names_.gate_up_in_turn) return;
    for (std::size_t i = 0; i < 2; ++i) {
      WeightSpec& spec = all_[all_.size() - 2 + i];
      spec.first_row = static_cast<std::int64_t>(i);
      spec.groups = {.size = 1, .stride = 2};
    }
  }
  // A norm of q or k, which has no bias.
  void norm(std::string tensor, std::int64_t size, Values& slot, RowOrder order = RowOrder::file) {
    bias(std::move(tensor), size, slot, order);
    all_.back().offset = names_.norm_offset;
  }
  // Norms of q or k in one tensor, one for each head.
  void head_norms(std::string tensor, int head_dim, int n_heads, Values& slot) {
    norm(std::move(tensor), head_dim, slot);
    all_.back().n_matrices = n_heads;
  }
  // A norm of the stream in layer i.
  void stream_norm(int i, std::string_view name, NormWeights& slot) {
    norm(names_.weight(i, name), config_.hidden_size, slot.weight);
    if (config_.norm_bias) add_vector(names_.bias(i, name), config_.hidden_size, slot.bias);
  }
  // A norm of the stream outside of the layers.
  void norm_outside(std::string_view name, NormWeights& slot) {
    const std::string weight(name);
    norm(weight, config_.hidden_size, slot.weight);
    if (config_.norm_bias) {
      add_vector(weight.substr(0, weight.rfind('.')) + ".bias", config_.hidden_size, slot.bias);
    }
  }
  // A product outside of the layers. `name` has no suffix.
  void biased(const std::string& name, std::int64_t n, std::int64_t k, bool has_bias, BiasedMatrix& slot) {
    matrix(name + ".weight", n, k, slot.weight);
    if (has_bias) bias(name + ".bias", n, slot.bias);
  }
  void bias(std::string tensor, std::int64_t size, Values& slot, RowOrder order = RowOrder::file) {
    add_vector(std::move(tensor), size, slot);
    all_.back().order = order;
  }
  // `tensor` includes the suffix. The caller may set how the values are changed.
  WeightSpec& values(std::string tensor, std::int64_t size, Values& slot) {
    add_vector(std::move(tensor), size, slot);
    return all_.back();
  }
  // A vector for all experts, in one tensor.
  void biases(std::string tensor, std::int64_t size, int n_experts, Values& slot) {
    add_vector(std::move(tensor), size, slot);
    all_.back().n_matrices = n_experts;
  }
  std::vector<WeightSpec> take() && { return std::move(all_); }

 private:
  void add_vector(std::string tensor, std::int64_t size, Values& slot) {
    all_.push_back({.tensor = std::move(tensor), .use = WeightUse::vector, .n = size, .k = 1, .slot = &slot});
  }
  const ModelFile& file_;
  const ModelConfig& config_;
  const TensorNames& names_;
  std::vector<WeightSpec> all_;
};

}  // namespace imp
