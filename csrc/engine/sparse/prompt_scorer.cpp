// Runs the draft model over a prompt and a few tokens after it.
#include "engine/sparse/prompt_scorer.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace imp {
namespace {

// The round number of a shadow that is being scored. It is later than all others: no other shadow takes its blocks, and
// it may take theirs.
constexpr std::uint64_t kBusy = std::numeric_limits<std::uint64_t>::max() / 2;

// Stops the watch even if the step throws.
class Watching {
 public:
  Watching(DraftSteps& steps, AttentionWatch* watch) : steps_(steps) { steps_.watch(watch); }
  ~Watching() { steps_.watch(nullptr); }
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

 private:
  DraftSteps& steps_;
};

}  // namespace

bool PromptScorer::begin(const Sequence& sequence, int first_token) {
  const std::size_t n_tokens = sequence.tokens.size() - static_cast<std::size_t>(first_token);
  id_ = sequence.id;
  n_prompt_ = static_cast<int>(sequence.tokens.size());
  mass_.resize(n_tokens);
  importance_.assign(n_tokens, 0.0F);
  watch_ = {.first_key = first_token, .mass = mass_};
  Shadow* const shadow = steps_->shadows().update(sequence, kBusy);
  if (shadow == nullptr) return false;
  shadow->copy.tokens.reserve(sequence.tokens.size() + static_cast<std::size_t>(kLookahead) + 1);
  shadow->copy.params = greedy_;
  return true;
}

PromptScorer::Progress PromptScorer::advance(int n_rows) {
  Shadow* const shadow = id_ ? steps_->shadows().find(*id_) : nullptr;
  if (shadow == nullptr) return Progress::failed;
  Sequence& copy = shadow->copy;
  const bool is_query = copy.held >= n_prompt_;
  first_row_ = copy.held;
  n_rows_ = std::min(n_rows, copy.n_left());
  if (!run_step(*shadow, is_query) || !take_draw(*shadow)) return Progress::failed;
  if (!is_query) return Progress::working;
  if (watch_.n_layers == 0) return Progress::failed;  // no layer sees the whole prompt
  for (std::size_t i = 0; i < mass_.size(); ++i) importance_[i] += mass_[i];
  if (copy.held < n_prompt_ + kLookahead) return Progress::working;
  for (float& value : importance_) value /= kLookahead;
  const auto is_finite = [](float value) { return std::isfinite(value); };
  return std::ranges::all_of(importance_, is_finite) ? Progress::done : Progress::failed;
}

bool PromptScorer::run_step(Shadow& shadow, bool is_query) {
  steps_->clear();
  if (!steps_->add(shadow, n_rows_)) return false;
  if (!is_query) return steps_->run();
  std::ranges::fill(mass_, 0.0F);
  const Watching watching(*steps_, &watch_);
  return steps_->run();
}

// The draw after the last row is the next query.
bool PromptScorer::take_draw(Shadow& shadow) {
  const Step& step = steps_->step();
  if (step.draws.empty()) return true;
  const SampleResult& result = step.draws.front().result;
  // Non-finite keys and values must not stay in the prefix cache.
  if (result.status == SampleStatus::non_finite) steps_->shadows().blocks().forget(shadow.copy.table);
  if (result.status != SampleStatus::ok) return false;
  shadow.copy.tokens.push_back(result.token);
  return true;
}

void PromptScorer::end(bool keeps_shadow) {
  if (!id_) return;
  if (Shadow* const shadow = steps_->shadows().find(*id_); shadow != nullptr && keeps_shadow) {
    shadow->last_round = 0;
  } else {
    steps_->shadows().erase(*id_);
  }
  id_.reset();
  mass_ = {};
  importance_ = {};
}

void PromptScorer::forget(const Sequence& sequence) noexcept {
  if (id_ == sequence.id) end(false);
  steps_->shadows().erase(sequence.id);
}

}  // namespace imp
