// What heads have in common.
#include "model/draft_head.h"

#include "model/assistant_head.h"
#include "model/layer/backend_needs.h"
#include "model/layer_head.h"

namespace imp {

const Linear& DraftHead::embedding() const {
  return head_.weights.embedding ? *head_.weights.embedding : *target_.weights().embedding;
}

const Linear& DraftHead::output_head() const {
  return head_.weights.own_output_head ? *head_.weights.own_output_head : target_.weights().output_head();
}

Norm DraftHead::norm(const Values& weight, const Linear* reader) const {
  return {.weight = weight.get(), .epsilon = sizes().norm_epsilon, .reader = reader};
}

void DraftHead::reserve() {
  WorkspaceNeeds needs = head_workspace_needs(head_.config, target_.config(), limits_);
  const HeadWeights& w = head_.weights;
  for (const Matrix* weight : {&w.embedding, &w.fuse, &w.feed_back, &w.centroids}) {
    if (*weight) needs.weights.push_back(weight->get());
  }
  for (const LayerWeights& layer : w.layers) add_matrices(layer, needs);
  needs.weights.push_back(&output_head());
  backend_.reserve(needs);
}

std::unique_ptr<DraftHead> make_draft_head(const HeadModel& head, const Model& target, Backend& backend,
                                           const ForwardLimits& limits) {
  if (head.config.reads_target) return std::make_unique<AssistantHead>(head, target, backend, limits);
  return std::make_unique<LayerHead>(head, target, backend, limits);
}

std::uint64_t head_activation_bytes(const HeadConfig& config, int target_vocab_size, const ForwardLimits& limits) {
  Workspace kept(limits.max_rows), observed(observed_rows(config, limits)), guessing(limits.max_logits_rows);
  Rows kept_by_target;
  kept.add(kept_by_target, config.hidden_width());
  LayerRows().declare(config.stack, LayerParts::queries, guessing);
  if (config.reads_target) {
    AssistantRows().declare(config, target_vocab_size, observed, guessing);
  } else {
    LayerRows().declare(config.stack, LayerParts::keys, observed);
    LayerHeadRows().declare(config, target_vocab_size, observed, guessing);
  }
  return kept.n_bytes() + observed.n_bytes() + guessing.n_bytes();
}

WorkspaceNeeds head_workspace_needs(const HeadConfig& config, const ModelConfig& target, const ForwardLimits& limits) {
  WorkspaceNeeds needs = workspace_needs(config.stack, limits);
  needs.vocab_size = target.vocab_size;
  if (!config.tensors.ids.empty()) needs.ops.push_back(Op::spread_columns);
  if (config.clusters.n > 0) needs.ops.push_back(Op::clustered_product);
  return needs;
}

}  // namespace imp
