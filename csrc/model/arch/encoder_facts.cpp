// Reads what encoders have besides the facts of all models.
#include "model/arch/encoder_facts.h"

#include <algorithm>
#include <string>

#include "model/config/model_limits.h"

namespace imp {
namespace {

// The number of rows of a table; 0 if the family has none.
int rows_of_table(FactReader& facts, std::string_view field, std::string_view tensor) {
  if (tensor.empty()) return 0;
  const TensorInfo* found = facts.file().find(tensor);
  if (found == nullptr) facts.refuse_tensor(Reason::MODEL_TENSOR, tensor, "missing", "a table");
  if (found->dims[1] < 1 || found->dims[1] > model_limits::kContext) {
    facts.refuse_tensor(Reason::MODEL_LIMIT, tensor, std::to_string(found->dims[1]) + " rows",
                        "1 to " + std::to_string(model_limits::kContext));
  }
  facts.note_tensor(field, tensor);
  return static_cast<int>(found->dims[1]);
}

void read_positions(FactReader& facts, int offset) {
  ModelConfig& config = facts.config;
  const std::string_view tensor = facts.names().text.positions;
  const int n_rows = rows_of_table(facts, "position_rows", tensor);
  if (n_rows == 0) return;
  if (n_rows < config.trained_context || n_rows <= offset) {
    facts.refuse_tensor(Reason::MODEL_TENSOR, tensor, std::to_string(n_rows) + " rows",
                        "one for each of " + std::to_string(config.trained_context) + " positions");
  }
  config.text_embedding.position_rows = n_rows;
  config.text_embedding.position_offset = offset;
  config.trained_context = std::min(config.trained_context, n_rows - offset);
  config.max_context = std::min(config.max_context, config.trained_context);
}

}  // namespace

void begin_encoder(FactReader& facts) {
  facts.config.is_two_sided = true;
  facts.config.has_head = false;
}

void see_both_sides(ModelConfig& config) {
  for (LayerConfig& layer : config.layers) {
    layer.kv = 0;
    layer.ahead = layer.window > 0 ? layer.window / 2 : kAllAhead;
    if (layer.window > 0) layer.window = layer.ahead + 1;
  }
}

void set_after_sum(ModelConfig& config) {
  config.norm_placement = NormPlacement::after_sum;
  config.norm_bias = true;
  config.has_final_norm = false;
}

void read_text_embedding(FactReader& facts, int offset) {
  const TextNames& names = facts.names().text;
  facts.config.text_embedding.n_token_types = rows_of_table(facts, "n_token_types", names.token_types);
  facts.config.text_embedding.is_normed = !names.embedding_norm.empty();
  read_positions(facts, offset);
}

void read_score_head(FactReader& facts) {
  const TextNames& names = facts.names().text;
  const std::string output = std::string(names.score_output) + ".weight";
  const std::string dense = std::string(names.score_dense) + ".weight";
  const TensorInfo* found = names.score_output.empty() ? nullptr : facts.file().find(output);
  if (found == nullptr) return;
  if (found->dims[1] != 1) {
    facts.refuse_tensor(Reason::MODEL_UNSUPPORTED, output, std::to_string(found->dims[1]) + " labels",
                        "1, the score of a reranker");
  }
  facts.config.score_head = ScoreHead{.has_dense = facts.has_tensor(dense)};
  facts.note_tensor("score_head", output);
}

}  // namespace imp
