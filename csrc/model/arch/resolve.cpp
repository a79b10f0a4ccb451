// The steps of resolution, in order.
#include "model/arch/resolve.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "model/arch/registry.h"
#include "model/config/apply_overrides.h"
#include "model/config/describe.h"
#include "model/config/model_limits.h"
#include "model/config/validate.h"

namespace imp {
namespace {

bool is_of_blocks(DType type) {
  return traits(type).block_elements > 1;
}

void add_head_fact(const OwnHead& head, std::vector<Fact>& facts) {
  if (!head.config && head.why_not.empty()) return;
  facts.push_back({.name = "head",
                   .value = head.config ? head.config->kind : "none (" + head.why_not + ")",
                   .origin = Origin::checkpoint,
                   .source = head.first_name.empty() ? "" : "tensor " + printable(head.first_name)});
}

// The longest context for which the model was trained, or to which RoPE scaling stretches it.
int covered_context(const ModelConfig& config) {
  double most = config.trained_context;
  for (const RopeConfig& rope : config.ropes) {
    const RopeScaling& scaling = rope.scaling;
    if (scaling.kind == RopeScalingKind::none) continue;
    most = std::max(
        most, scaling.factor * (scaling.original_context > 0 ? scaling.original_context : config.trained_context));
  }
  return static_cast<int>(std::min<double>(most, model_limits::kContext));
}

void require_trained(const ModelConfig& config, const Origins& origins, bool may_be_longer, std::string_view where) {
  const int covered = covered_context(config);
  if (may_be_longer || config.max_context <= covered) return;
  throw ModelError(Reason::OVERRIDE_INVALID,
                   std::string(where) + ": " + origins.find("max_context").source + ": " +
                       std::to_string(config.max_context) + ", expected at most " + std::to_string(covered) +
                       ", for which the model was trained; for more, set rope_scaling, or untrained_context = true "
                       "and expect worse text");
}

// What is behind another pooling than that of the model.
void drop_unused(ModelConfig& config) {
  if (config.pooling != Pooling::rank) config.score_head.reset();
  if (config.pooling == Pooling::none || config.pooling == Pooling::rank) config.projections.clear();
}

}  // namespace

bool is_mostly(const ModelFile& file, bool (*is_meant)(DType)) {
  std::int64_t meant = 0, others = 0;
  for (const TensorInfo& tensor : file.tensors()) (is_meant(tensor.dtype) ? meant : others) += tensor.n_elements();
  return meant > others;
}

void choose_cache_type(FactReader& facts) {
  if (facts.config.is_two_sided) {  // the cache holds the rows of one layer at a time, so they need not be rounded
    facts.config.kv_types = {KvType::f32, KvType::f32};
    return;
  }
  if (!is_mostly(facts.file(), is_of_blocks)) return;
  facts.config.kv_types = {KvType::bf16, KvType::bf16};
  facts.origins.note("kv_dtype", Origin::checkpoint, "quantized weights");
}

std::string not_understood(const std::string& key) {
  return "key " + key + ": not understood and not used";
}

ResolvedModel resolve_model(const ModelFile& file, const ModelOverrides& overrides) {
  ResolvedModel model;
  model.architecture = &architecture_of(file);
  model.names = &model.architecture->names_in(file);
  FactReader facts(file, model.architecture->key_prefix(), *model.names);
  model.architecture->read(facts);
  choose_cache_type(facts);
  apply_overrides(overrides, facts.config, facts.origins);
  for (RopeConfig& rope : facts.config.ropes) rope.scaling.context = facts.config.max_context;
  validate(facts.config, facts.origins, file.metadata().where(), file.metadata().wrong_value());
  drop_unused(facts.config);
  require_trained(facts.config, facts.origins, overrides.untrained_context, file.metadata().where());

  model.warnings = file.warnings();
  for (const std::string& key : facts.unread_keys()) model.warnings.push_back(not_understood(key));
  const ModelConfig& config = facts.config;
  if (const int covered = covered_context(config); config.max_context > covered) {
    model.warnings.push_back("max_context " + std::to_string(config.max_context) + " is beyond the " +
                             std::to_string(covered) + " tokens the model was trained on");
  }
  model.facts = describe(config, facts.origins);
  model.own_head = find_nextn(file, *model.names, config);
  add_head_fact(model.own_head, model.facts);
  model.omitted_sizes = facts.omitted();
  model.read_tensors = facts.read_tensors();
  model.config = std::move(facts.config);
  return model;
}

}  // namespace imp
