// The facts that encoders of texts share.
#pragma once

#include "model/arch/fact_reader.h"

namespace imp {

// Before the sizes are read: rows see both sides, and there are no logits.
void begin_encoder(FactReader& facts);

// After they are read: every row sees all of its text, in layers with a window half of it to each side. All layers
// share one layer of the cache, since each of them overwrites what the one before it wrote.
void see_both_sides(ModelConfig& config);

// Norms after each sum, with biases, and none behind the last layer.
void set_after_sum(ModelConfig& config);

// The tables of types and positions, and the norm of the sum. Row `offset` of the table of positions is that of the
// first token. The context is at most what the table has.
void read_text_embedding(FactReader& facts, int offset);

// The classifier of a reranker, if the file has one. Throws MODEL_UNSUPPORTED if it has several labels.
void read_score_head(FactReader& facts);

}  // namespace imp
