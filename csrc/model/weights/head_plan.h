// Plans and loads the weights of a draft head.
#pragma once

#include <cstdint>
#include <vector>

#include "files/model_file.h"
#include "model/arch/head_config.h"
#include "model/layer/layer_weights.h"
#include "model/weights/weight_plan.h"

namespace imp {

// Null where the head uses its target's weight, or has none.
struct HeadWeights {
  Matrix embedding;                     // [vocab, hidden]
  Values embedding_norm, hidden_norm;   // [hidden]
  Values tap_norm;                      // [taps · hidden]
  Matrix fuse;                          // [hidden, 2 · target hidden], or [hidden, taps · target hidden]
  std::vector<LayerWeights> layers;     // q, k and v read attention_width() elements
  Values final_norm;                    // [hidden]
  Matrix own_output_head;               // [rows, hidden]
  Matrix feed_back;                     // [target hidden, hidden]
  std::vector<std::int32_t> token_ids;  // of its rows, or of its clusters; empty: row i is token i
  Matrix centroids;                     // [clusters, hidden]
};

struct HeadPlan {
  HeadConfig config;
  std::vector<std::int32_t> token_ids;
  WeightPlan weights;
};

// A loaded head.
struct HeadModel {
  HeadConfig config;
  HeadWeights weights;
  std::vector<Rope> ropes;
  double cost_of_guess = 0;  // bytes of weights read for a guess / bytes read for a row of the target
};

// Checks every tensor of the head, and reads the ids of its rows. Throws ModelError with the tensor, what was found and
// what was expected.
HeadPlan plan_head(const ModelFile& file, HeadConfig config, int n_target_tokens, const GemmRegistry& registry,
                   std::span<const GemmOverride> overrides, const PlanPolicy& policy);

// The cache of a head that has one: one layer.
KvGeometry head_kv_geometry(const HeadConfig& config, int block_tokens, int n_blocks);

HeadWeights load_head(const ModelFile& file, const HeadPlan& plan, Backend& backend);

}  // namespace imp
