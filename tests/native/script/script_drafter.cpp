// Guesses by the script's own rule.
#include "native/script/script_drafter.h"

#include "engine/sequence/sequence.h"

namespace imp::testing {
namespace {

// In [0, 1).
double share_of(std::span<const std::int32_t> tokens) {
  std::uint64_t hash = tokens.size();
  for (const std::int32_t token : tokens.last(std::min<std::size_t>(tokens.size(), 8))) {
    hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29U;
  }
  return static_cast<double>(hash >> 11U) / static_cast<double>(std::uint64_t{1} << 53U);
}

}  // namespace

void ScriptDrafter::draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) draft(request);
}

void ScriptDrafter::draft(DraftRequest& request) {
  const Sequence& sequence = *request.sequence;
  tokens_ = sequence.tokens;
  row_.resize(static_cast<std::size_t>(model_.vocab_size()));
  for (int i = 0; i < request.n_wanted; ++i) {
    model_.logits_after(tokens_, row_);
    const auto n_output = static_cast<std::int32_t>(tokens_.size()) - sequence.base;
    const SampleResult drawn = backend_.draw(row_, {.params = &sequence.params,
                                                    .history = tokens_,
                                                    .n_output = n_output,
                                                    .sequence = sequence.stream,
                                                    .index = static_cast<std::uint32_t>(n_output),
                                                    .candidates = {}});
    if (drawn.status != SampleStatus::ok) return;
    const bool is_right = share_of(tokens_) < model_.script.drafts;
    const std::int32_t token = is_right ? drawn.token : (drawn.token + 1) % model_.vocab_size();
    request.guesses.push_back({.token = token});
    tokens_.push_back(token);
  }
}

Drafters script_drafters(ScriptModel& model, ScriptBackend& backend) {
  Drafters drafters;
  if (model.script.drafts >= 0) drafters.push_back(std::make_unique<ScriptDrafter>(model, backend));
  return drafters;
}

}  // namespace imp::testing
