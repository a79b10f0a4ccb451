// A run evaluates its text and ends: it draws nothing and returns nothing else.
#include "engine/schedule/vector_checks.h"

#include "engine/schedule/field_checks.h"

namespace imp {
namespace {

void check_second_text(const RunCommand& command, const PoolingFacts& facts) {
  if (command.second_text == -1) return;
  if (!command.returns.vector || facts.n_token_types < 2) {
    refuse("second_text", std::to_string(command.second_text), "none: the run has no token types");
  }
  check_range("second_text", command.second_text, 0, static_cast<std::int64_t>(command.tokens.size()) - 1);
}

void check_nothing_else(const RunCommand& command) {
  const char* const nothing = "nothing else from a run that returns a vector";
  if (command.limits.max_outputs != 0) {
    refuse("max_tokens", std::to_string(command.limits.max_outputs), "0 for a run that returns a vector");
  }
  if (!command.siblings.empty()) refuse("num_sequences", std::to_string(1 + command.siblings.size()), nothing);
  if (command.constrained) refuse("constrained", "true", nothing);
  if (!command.media.empty()) refuse("media", std::to_string(command.media.size()) + " spans", nothing);
  if (command.sparse.policy != SparsePolicy::dense) refuse("sparse_prefill", "asked for", nothing);
  const RunReturns& returns = command.returns;
  if (returns.logits) refuse("logits", "true", nothing);
  if (returns.scores) refuse("scores", "true", nothing);
  if (returns.n_candidates > 0) refuse("top_logprobs", std::to_string(returns.n_candidates), nothing);
}

}  // namespace

void check_vector(const RunCommand& command, const PoolingFacts& facts, int vocab_size) {
  check_second_text(command, facts);
  if (!command.returns.vector) {
    if (vocab_size == 0) refuse("vector", "not asked for", "the vector of the text: the model makes no logits");
    return;
  }
  if (facts.pooling == Pooling::none) refuse("vector", "asked for", "none: the model makes no vectors");
  check_range("dimensions", command.returns.vector->dimensions, 0, facts.width);
  check_nothing_else(command);
}

}  // namespace imp
