// The tensors that a configuration needs, with shape and destination.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "files/model_file.h"
#include "model/arch/tensor_names.h"
#include "model/config/model_config.h"
#include "model/weights/weights.h"

namespace imp {

// The use of a weight decides how it is stored.
enum class WeightUse : std::uint8_t {
  product,      // a matrix that multiplies activations
  expert,       // the same, for the rows routed to its expert
  output_head,  // the output head; if tied, also the table of token embeddings
  lookup,       // a matrix whose rows are looked up and never multiplied
  vector,       // float32 values
};

// The order of a weight's rows.
enum class RowOrder : std::uint8_t {
  file,         // as in the file
  pairs_apart,  // in each head, rows i and i + head_dim / 2 of the file become rows 2i and 2i + 1
  // The second and the third quarter of each head change places: pairs of its halves, rows i and i + head_dim / 4,
  // become pairs of the head, i and i + head_dim / 2.
  quarters_swapped,
};

// Equal groups of rows: `size` rows of every `stride` rows of the file. 0: the rows follow each other.
struct RowGroups {
  std::int64_t size = 0;
  std::int64_t stride = 0;

  std::int64_t file_row(std::int64_t row) const noexcept { return size == 0 ? row : row / size * stride + row % size; }
};

// How the values of a vector are changed when they are loaded.
enum class ValueMap : std::uint8_t {
  none,
  negative_exp,  // -exp(value)
};

// The frames of a convolution over several. All see the same picture, so the sum of their values is stored, as float32.
struct Frames {
  int in_row = 1;           // side by side, in each colour of a row
  std::string second = {};  // the tensor of the second one; empty: there is none

  bool are_summed() const noexcept { return in_row > 1 || !second.empty(); }
};

// A table that stays with the host: the values of its rows, one after the other.
using HostTable = std::vector<float>;

// A weight of the model: its tensor in the file, its shape, where it is stored, and how it is changed.
struct WeightSpec {
  std::string tensor;
  WeightUse use = WeightUse::product;
  std::int64_t n = 0;  // rows; the size of a vector
  // Elements of a row; 1 for a vector. A vector with more has the file's rows [n, k] side by side: [k, n].
  std::int64_t k = 0;
  // Of a convolution: the dimensions of a row in the file, which are k elements of each frame. Empty: a row has one.
  std::vector<std::int64_t> row_dims = {};
  // A row of the file has so many values in turn: the first of each group becomes the first part of the row, and so on.
  int in_turn = 1;
  Frames frames = {};
  std::variant<Matrix*, Values*, Stack*, HostTable*> slot;
  int n_matrices = 1;  // in the tensor, each [n, k]; for a stack the experts, whose biases may be one vector too
  // A part of each matrix of the tensor: n rows from first_row on, of tensor_rows, in groups.
  std::int64_t first_row = 0;
  std::int64_t tensor_rows = 0;  // 0: the matrix is whole
  StackForm form = StackForm::rows;
  RowOrder order = RowOrder::file;
  RowGroups groups = {};
  ValueMap map = ValueMap::none;
  float offset = 0;  // added to every value of a vector, and then
  float factor = 1;  // multiplied with it

  std::int64_t rows_in_tensor() const noexcept { return tensor_rows == 0 ? n : tensor_rows; }
};

std::string_view name_of(WeightUse use);

// Tensors that a file may hold but that no layer reads: k and v of layers that share those of an earlier one.
std::vector<std::string> spare_tensors(const ModelConfig& config, const TensorNames& names);

// The specs of layer i of the configuration, in the order of use.
std::vector<WeightSpec> layer_specs(const ModelFile& file, const ModelConfig& config, const TensorNames& names, int i,
                                    LayerWeights& layer);

// Makes the layers and lists every spec in the order of use. The specs point into `weights`. The file decides which
// weights lie in one tensor.
std::vector<WeightSpec> weight_specs(const ModelFile& file, const ModelConfig& config, const TensorNames& names,
                                     Weights& weights);

}  // namespace imp
