// Loads a model.
#include "model/model.h"

#include <algorithm>

#include "base/error.h"
#include "model/arch/draft_heads.h"
#include "model/arch/resolve.h"
#include "model/config/rope.h"
#include "model/decoder.h"
#include "model/draft_head.h"
#include "model/layer/backend_needs.h"
#include "model/vision/model_vision.h"
#include "model/weights/op_scratch.h"

namespace imp {
namespace {

std::uint64_t scratch_bytes(const ModelConfig& config, const WeightPlan& plan, const ForwardLimits& limits,
                            const Backend& backend) {
  return activation_bytes(config, limits) + op_scratch_bytes(workspace_needs(config, limits), plan, backend);
}

PlanPolicy policy_of(const ModelOverrides& overrides) {
  return {.one_reduction = overrides.deterministic, .unvalidated_kernels = overrides.unvalidated_kernels};
}

// The head that the options ask for, if there is one.
std::optional<HeadPlan> find_head(const ModelFile& file, const ResolvedModel& resolved, const Backend& backend,
                                  const ModelOverrides& overrides, const LoadOptions& options) {
  const ModelConfig& target = resolved.config;
  const bool is_own = options.head_file == nullptr;
  if (is_own && (!options.with_own_head || !resolved.own_head.config)) return std::nullopt;
  const ModelFile& source = is_own ? file : *options.head_file;
  if (backend.caps().device != "cpu") {
    throw ModelError(Reason::MODEL_UNSUPPORTED,
                     source.name() + ": draft head on device " + std::string(backend.caps().device) + ", expected cpu");
  }
  try {
    HeadConfig config = is_own ? *resolved.own_head.config : read_head(source, resolved.architecture->name, target);
    return plan_head(source, std::move(config), target.n_tokens, backend.registry(), overrides.gemm,
                     policy_of(overrides));
  } catch (const ModelError& error) {
    if (is_own) throw;
    throw ModelError(error.reason(), std::string("speculation.head: ") + error.what());
  }
}

// The head of a plan whose target has these weights.
HeadModel load_planned_head(const ModelFile& file, const HeadPlan& plan, const LoadPlan& target,
                            const Weights& target_weights, std::span<const Rope> target_ropes, Backend& backend) {
  const HeadConfig& config = plan.config;
  HeadModel head{.config = config, .weights = load_head(file, plan, backend), .ropes = {}};
  for (const int rope : config.target_ropes) head.ropes.push_back(target_ropes[static_cast<std::size_t>(rope)]);
  if (config.target_ropes.empty()) {
    for (const RopeConfig& rope : config.stack.ropes) head.ropes.push_back(resolve_rope(rope, divisors_of(rope)));
  }
  auto n_bytes = static_cast<double>(bytes_per_token(plan.weights, config.stack.experts));
  if (const HeadClusters& of = config.clusters; of.n > 0) {
    n_bytes += static_cast<double>(head.weights.own_output_head->n_bytes()) * of.n_used / of.n;
  }
  if (!head.weights.own_output_head) n_bytes += static_cast<double>(target_weights.output_head().n_bytes());
  head.cost_of_guess = n_bytes / static_cast<double>(bytes_per_token(target.weights, target.resolved.config.experts));
  return head;
}

// The memory of a head: its weights, its activations and scratch, and its cache, if it has one.
void add_head(const HeadPlan& head, const ModelConfig& target, std::uint64_t target_scratch, const Backend& backend,
              const LoadOptions& options, MemoryRequest& request) {
  const std::uint64_t scratch =
      op_scratch_bytes(head_workspace_needs(head.config, target, options.limits), head.weights, backend);
  const auto cache = [&](int n_blocks) -> std::uint64_t {
    if (head.config.reads_target) return 0;
    return backend.kv_bytes(head_kv_geometry(head.config, options.kv_block_tokens, n_blocks));
  };
  request.head_block_bytes = cache(1) - cache(0);
  request.head_bytes = head.weights.n_bytes + head_activation_bytes(head.config, target.vocab_size, options.limits) +
                       (scratch > target_scratch ? scratch - target_scratch : 0) + cache(chain_blocks(options.limits));
}

// The fixed part, and the parts per block and per slot of recurrent state.
struct KvSizes {
  std::uint64_t fixed, block, state_slot;
};

KvSizes kv_sizes(const ModelConfig& config, const LoadOptions& options, const Backend& backend) {
  const auto bytes = [&](int n_blocks, int n_slots) {
    return backend.kv_bytes(kv_geometry(config, options.kv_block_tokens, n_blocks, n_slots));
  };
  return {bytes(0, 0), bytes(1, 0) - bytes(0, 0), bytes(0, 1) - bytes(0, 0)};
}

MemoryRequest memory_request(const ModelConfig& config, const WeightPlan& plan, std::uint64_t scratch, KvSizes kv,
                             const ModelOverrides& overrides, const LoadOptions& options) {
  const ForwardLimits& limits = options.limits;
  return {.budget_bytes = options.memory_bytes,
          .weights_bytes = plan.n_bytes,
          .scratch_bytes = scratch + kv.fixed,
          .logits_bytes = static_cast<std::uint64_t>(limits.max_logits_rows) *
                          static_cast<std::uint64_t>(config.n_logits()) * sizeof(float),
          .reserve_bytes = options.reserve_bytes,
          .kv_block_bytes = kv.block,
          .kv_block_tokens = options.kv_block_tokens,
          .kv_bytes = options.kv_bytes,
          .state_slot_bytes = kv.state_slot,
          .max_running = options.max_running,
          .state_snapshot_bytes = options.state_snapshot_bytes,
          .model_context = config.max_context,
          .max_context = overrides.max_context};
}

}  // namespace

std::vector<WeightSummary> summaries_of(const WeightPlan& plan) {
  std::vector<WeightSummary> summaries;
  for (const PlannedWeight& weight : plan.weights) {
    summaries.push_back({.tensor = weight.tensor->name,
                         .problem = weight.problem,
                         .use = weight.use,
                         .n_matrices = weight.n_matrices,
                         .plan = weight.plan,
                         .n_bytes = weight.n_bytes});
  }
  return summaries;
}

namespace {

StateGeometry state_geometry(const ModelConfig& config, int n_slots) {
  if (config.n_state_layers() == 0) return {};
  return {.n_layers = config.n_state_layers(),
          .conv_taps = config.conv_taps - 1,
          .conv_width = config.delta.width(),
          .n_heads = config.delta.n_value_heads,
          .key_dim = config.delta.key_dim,
          .value_dim = config.delta.value_dim,
          .n_slots = n_slots};
}

}  // namespace

KvGeometry kv_geometry(const ModelConfig& config, int block_tokens, int n_blocks, int n_state_slots) {
  const std::vector<KvTypes> types = config.kv_types_by_layer(config.kv_types);
  std::vector<KvLayer> layers(types.size());
  for (const LayerConfig& layer : config.layers) {
    if (layer.kv == kNoKv || layer.shares_kv) continue;
    const auto i = static_cast<std::size_t>(layer.kv);
    layers[i] = {layer.n_kv_heads, layer.head_dim, types[i]};
  }
  return {.layers = std::move(layers),
          .block_tokens = block_tokens,
          .n_blocks = n_blocks,
          .state = state_geometry(config, n_state_slots)};
}

bool Model::write_packed(const std::function<bool()>& goes_on) const {
  IMP_CHECK(packed_ && packed_->cache);
  return packed_->cache->write(packed_->matrices, goes_on);
}

namespace {

void set_context(int context, const std::string& why, ModelConfig& config, std::vector<Fact>& facts,
                 std::vector<std::string>& warnings) {
  if (context == config.max_context) return;
  warnings.push_back("max_context is " + std::to_string(context) + ", not " + std::to_string(config.max_context) +
                     ": " + why);
  config.max_context = context;
  for (Fact& fact : facts) {
    if (fact.name == "max_context") fact.value = std::to_string(context);
  }
}

}  // namespace

void Model::lower_context() {
  set_context(memory_.max_context, "the KV cache holds no more", config_, facts_, warnings_);
}

namespace {

// One step evaluates all of a text whose rows see both sides.
void fit_texts_to_step(int step_tokens, ResolvedModel& model) {
  if (!model.config.is_two_sided) return;
  set_context(std::min(step_tokens, model.config.max_context),
              "a text is evaluated in one step, of scheduler.step_tokens", model.config, model.facts, model.warnings);
}

// The model's own file has the tensors of these weights too.
void claim(const WeightPlan& weights, ResolvedModel& resolved) {
  for (const PlannedWeight& weight : weights.weights) resolved.read_tensors.insert(weight.tensor->name);
}

}  // namespace

LoadPlan plan_load(const ModelFile& file, const Backend& backend, const ModelOverrides& overrides,
                   const LoadOptions& given) {
  LoadOptions options = given;
  LoadPlan plan{
      .resolved = resolve_model(file, overrides), .weights = {}, .head = {}, .vision = {}, .limits = {}, .memory = {}};
  fit_texts_to_step(options.limits.max_rows, plan.resolved);
  const ModelConfig& config = plan.resolved.config;
  plan.head = find_head(file, plan.resolved, backend, overrides, options);
  if (plan.head && options.head_file == nullptr) claim(plan.head->weights, plan.resolved);
  plan.vision = find_vision(file, plan.resolved, backend, overrides, policy_of(overrides), options);
  if (plan.vision && options.projector_file == nullptr) claim(plan.vision->weights, plan.resolved);
  if (plan.vision) options.limits.takes_media = true;
  plan.limits = options.limits;
  plan.weights = plan_weights(file, plan.resolved, backend.registry(), overrides.gemm, policy_of(overrides));
  const std::uint64_t scratch =
      as_unsupported(file, [&] { return scratch_bytes(config, plan.weights, options.limits, backend); });
  const std::uint64_t scratch_of_ops = scratch - activation_bytes(config, options.limits);
  const KvSizes kv = as_unsupported(file, [&] { return kv_sizes(config, options, backend); });
  plan.memory = memory_request(config, plan.weights, scratch, kv, overrides, options);
  if (plan.memory.max_context && config.is_two_sided) plan.memory.max_context = config.max_context;
  if (plan.head) {
    as_unsupported(file, [&] { add_head(*plan.head, config, scratch_of_ops, backend, options, plan.memory); });
  }
  if (plan.vision) add_vision(*plan.vision, scratch_of_ops, options, plan.memory);
  if (const auto own = backend.own_memory_bytes()) {
    plan.memory.budget_bytes = *own;
    plan.memory.reserve_bytes = 0;
    plan.memory.is_for_models = true;
  }
  return plan;
}

std::unique_ptr<const Model> load_planned(const ModelFile& file, Backend& backend, LoadPlan load, MemoryPlan memory,
                                          const LoadOptions& options) {
  auto& [resolved, plan, head, vision, limits, request] = load;
  std::unique_ptr<Model> model(new Model);
  model->memory_ = std::move(memory);
  model->ropes_ = load_ropes(file, resolved.config, plan);
  if (!options.packed_cache.empty()) model->packed_.emplace().folder = options.packed_cache;
  PackedWeights* const packed = model->packed_ ? &*model->packed_ : nullptr;
  model->weights_ = load_weights(file, resolved, plan, backend, options.progress, packed);
  if (head) {
    const ModelFile& source = options.head_file == nullptr ? file : *options.head_file;
    model->head_ = load_planned_head(source, *head, load, model->weights_, model->ropes_, backend);
  }
  model->architecture_ = resolved.architecture->name;
  model->facts_ = std::move(resolved.facts);
  model->warnings_ = std::move(resolved.warnings);
  model->warnings_.insert(model->warnings_.end(), plan.warnings.begin(), plan.warnings.end());
  if (vision) {
    const std::vector<std::string>& warnings = vision->resolved.warnings;
    model->warnings_.insert(model->warnings_.end(), warnings.begin(), warnings.end());
  }
  model->config_ = std::move(resolved.config);
  model->lower_context();
  model->summaries_ = summaries_of(plan);
  model->kv_block_tokens_ = options.kv_block_tokens;
  return model;
}

std::unique_ptr<const Model> load_model(const ModelFile& file, Backend& backend, const ModelOverrides& overrides,
                                        const LoadOptions& options) {
  LoadPlan plan = plan_load(file, backend, overrides, options);
  MemoryPlan memory = plan_memory(plan.memory);
  return load_planned(file, backend, std::move(plan), std::move(memory), options);
}

}  // namespace imp
