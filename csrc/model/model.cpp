// The steps of a load.
#include "model/model.h"

#include "base/error.h"
#include "model/decoder.h"
#include "model/resolve.h"

namespace imp {
namespace {

MemoryPlan plan_model_memory(const ModelConfig& config, const WeightPlan& plan, const ModelOverrides& overrides,
                             const LoadOptions& options) {
  const ForwardLimits& limits = options.limits;
  return plan_memory({.budget_bytes = options.memory_bytes,
                      .weights_bytes = plan.n_bytes,
                      .scratch_bytes = activation_bytes(config, limits),
                      .logits_bytes = static_cast<std::uint64_t>(limits.max_logits_rows) *
                                      static_cast<std::uint64_t>(config.vocab_size) * sizeof(float),
                      .reserve_bytes = options.reserve_bytes,
                      .kv_block_bytes = kv_block_bytes(kv_geometry(config, options.kv_block_tokens, 1)),
                      .kv_block_tokens = options.kv_block_tokens,
                      .kv_bytes = options.kv_bytes,
                      .model_context = config.max_context,
                      .max_context = overrides.max_context});
}

std::vector<WeightSummary> summaries_of(WeightPlan& plan) {
  std::vector<WeightSummary> summaries;
  for (PlannedWeight& weight : plan.weights) {
    summaries.push_back({.tensor = weight.tensor->name,
                         .problem = weight.problem,
                         .is_matrix = weight.use != WeightUse::vector,
                         .plan = std::move(weight.plan),
                         .n_bytes = weight.n_bytes});
  }
  return summaries;
}

}  // namespace

KvGeometry kv_geometry(const ModelConfig& config, int block_tokens, int n_blocks) {
  return {.n_layers = config.n_layers,
          .n_kv_heads = config.n_kv_heads,
          .head_dim = config.head_dim,
          .block_tokens = block_tokens,
          .n_blocks = n_blocks,
          .dtype = config.kv_dtype};
}

void Model::lower_context() {
  if (memory_.max_context == config_.max_context) return;
  warnings_.push_back("max_context is " + std::to_string(memory_.max_context) + ", not " +
                      std::to_string(config_.max_context) + ": that is what the cache holds");
  config_.max_context = memory_.max_context;
  for (Fact& fact : facts_) {
    if (fact.name == "max_context") fact.value = std::to_string(memory_.max_context);
  }
}

std::unique_ptr<const Model> load_model(const ModelFile& file, Backend& backend, const ModelOverrides& overrides,
                                        const LoadOptions& options) {
  ResolvedModel resolved = resolve_model(file, overrides);
  WeightPlan plan = plan_weights(file, resolved, backend.registry(), overrides.gemm);
  std::unique_ptr<Model> model(new Model);
  model->memory_ = plan_model_memory(resolved.config, plan, overrides, options);
  model->ropes_ = load_ropes(file, resolved.config, plan);
  model->weights_ = load_weights(file, resolved, plan, backend, options.progress);
  model->architecture_ = resolved.architecture->name;
  model->facts_ = std::move(resolved.facts);
  model->warnings_ = std::move(resolved.warnings);
  model->warnings_.insert(model->warnings_.end(), plan.warnings.begin(), plan.warnings.end());
  model->config_ = std::move(resolved.config);
  model->lower_context();
  model->summaries_ = summaries_of(plan);
  model->kv_block_tokens_ = options.kv_block_tokens;
  return model;
}

}  // namespace imp
