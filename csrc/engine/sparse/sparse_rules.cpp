// The table of contracts.md, Sparse prefill.
#include "engine/sparse/sparse_rules.h"

#include <algorithm>

#include "engine/sparse/chunk_selection.h"

namespace imp {
namespace {

// A sparse prompt must take less than this share of the dense one's time.
constexpr double kMaxTimeShare = 0.8;

// Scoring reads the whole prompt, including the tokens that the model's cache already holds.
bool pays(const SparseRequest& request, const PromptFacts& facts) noexcept {
  const double first = facts.n_cached;
  const double scoring = facts.draft.of(0, first + facts.n_new);
  const int share = std::max(request.keep, request.backbone);
  const double part = facts.model.of(first, least_selected(facts.n_new, share));
  return scoring + part < kMaxTimeShare * facts.model.of(first, facts.n_new);
}

}  // namespace

DenseReason why_dense(const SparseRequest& request, const SparseLimits& limits, const PromptFacts& facts) noexcept {
  const bool is_automatic = request.policy == SparsePolicy::automatic;
  if (request.policy == SparsePolicy::dense) return DenseReason::requested;
  if (std::max(request.keep, request.backbone) == kKeepAll) return DenseReason::keep_all;
  if (facts.wants_scores) return DenseReason::prompt_scores;
  if (facts.has_media) return DenseReason::media;
  if (facts.n_new > limits.max_tokens || facts.n_cached + facts.n_new > facts.max_scored) {
    return DenseReason::over_limit;
  }
  if (is_automatic && facts.n_new <= limits.threshold) return DenseReason::below_threshold;
  if (is_automatic && !pays(request, facts)) return DenseReason::not_profitable;
  return DenseReason::none;
}

}  // namespace imp
