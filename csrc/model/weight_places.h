// Which tensors a configuration asks for, of which shape, and where each goes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/arch/tensor_names.h"
#include "model/layers.h"
#include "model/model_config.h"

namespace imp {

// How a weight is used decides how it is kept.
enum class WeightUse : std::uint8_t {
  product,  // a matrix that activations are multiplied with
  expert,   // likewise, with those that were sent to its expert
  head,     // the matrix that gives the logits; a tied one is also the table of token embeddings
  lookup,   // a matrix whose rows are looked up and never multiplied
  vector,   // float32 values
};

// How a tensor's values in the file become the weight's.
enum class RowOrder : std::uint8_t {
  file,         // as they are
  pairs_apart,  // of each head, the file's rows i and i + head_dim / 2 become rows 2i and 2i + 1
};

struct WeightPlace {
  std::string tensor;
  WeightUse use = WeightUse::product;
  std::int64_t n = 0;  // rows; of a vector its size
  std::int64_t k = 0;  // elements of a row; of a vector 1
  std::variant<Matrix*, Values*, Stack*> slot;
  int n_matrices = 1;  // that the tensor holds, of [n, k] each: of a stack the experts
  RowOrder order = RowOrder::file;
  float offset = 0;  // added to every value of a vector
};

std::string_view name_of(WeightUse use);

// Makes the layers and lists every place, in the order of use. The places point into `weights`.
std::vector<WeightPlace> weight_places(const ModelConfig& config, const TensorNames& names, Weights& weights);

}  // namespace imp
