// The path of a run from the decision to the choice of its tokens.
#include "engine/sparse/sparse_prefill.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/sparse/chunk_selection.h"
#include "engine/sparse/sparse_rules.h"
#include "engine/speculation/model_drafter.h"

namespace imp {
namespace {

// Up to about this many rows, the time of a step is that of reading the weights.
constexpr int kMinRows = 24;

}  // namespace

SparsePrefill::SparsePrefill(EngineState& state, const Speculation& speculation, std::unique_ptr<PromptScorer> scorer,
                             const Clock& clock)
    : state_(state), speculation_(speculation), scorer_(std::move(scorer)), clock_(clock) {
  if (state.options.sparse_prefill && scorer_ == nullptr) {
    throw FieldInvalid("sparse_prefill", "1, expected 0: there is no draft model");
  }
}

// Tokens at the beginning that the prefix cache holds now.
int SparsePrefill::n_cached(const Sequence& sequence) {
  return sequence.bypass_prefix ? 0 : state_.blocks.n_matching(sequence.scope.key, sequence.tokens);
}

void SparsePrefill::decide(Sequence& sequence) {
  Run& run = *sequence.run;
  run.sparse_report = {.is_asked = run.sparse_request.is_asked};
  if (!run.sparse_request.is_asked) return;
  if (run.sparse_request.policy == SparsePolicy::dense) {
    run.sparse_report.reason = DenseReason::requested;
    return;
  }
  IMP_CHECK(scorer_ != nullptr);
  const bool is_measured = model_.is_known() && draft_.is_known();
  const int n_held = n_cached(sequence);
  const PromptFacts facts = {.n_cached = n_held,
                             .n_new = static_cast<int>(sequence.tokens.size()) - n_held,
                             .wants_scores = run.returns.scores,
                             .has_media = !sequence.media.empty(),
                             .max_scored = scorer_->max_tokens(),
                             .draft = is_measured ? draft_.cost() : PromptCost{.linear = scorer_->cost_of_row()},
                             .model = is_measured ? model_.cost() : PromptCost{.linear = 1}};
  const SparseLimits limits = {.threshold = state_.options.sparse_threshold,
                               .max_tokens = state_.options.sparse_max_tokens};
  run.sparse_report.reason = why_dense(run.sparse_request, limits, facts);
  run.awaits_scoring = run.sparse_report.reason == DenseReason::none;
}

// Null if the run has ended, or none is being scored.
Sequence* SparsePrefill::current() {
  Sequence* const found = ticket_ == 0 ? nullptr : state_.find(id_);
  const bool is_there = found != nullptr && found->run && found->run->ticket == ticket_ && found->run->awaits_scoring;
  return is_there ? found : nullptr;
}

bool SparsePrefill::advance() {
  if (scorer_ == nullptr) return false;
  Sequence* sequence = current();
  if (sequence == nullptr) {
    ticket_ = 0;
    sequence = state_.scheduler.next_to_score(state_.now_ns);
    if (sequence == nullptr) return false;
    if (!begin(*sequence)) return true;
  } else if (sequence->run->paused()) {
    return false;
  }
  const std::int64_t begin_ns = clock_();
  const PromptScorer::Progress progress = scorer_->advance(n_rows());
  const std::int64_t ns = clock_() - begin_ns;
  sequence->run->sparse_report.scoring_ns += ns;
  draft_.add(scorer_->first_row(), scorer_->n_rows(), static_cast<double>(ns));
  state_.scheduler.charge(*sequence, static_cast<int>(scorer_->n_rows() * scorer_->cost_of_row()));
  if (progress == PromptScorer::Progress::failed) make_dense(*sequence, DenseReason::failed);
  if (progress == PromptScorer::Progress::done) finish(*sequence);
  return true;
}

// Returns false if the prompt cannot be scored: it is dense then.
bool SparsePrefill::begin(Sequence& sequence) {
  bool has_begun = false;
  Run& run = *sequence.run;
  run.scored_ns = clock_();
  id_ = sequence.id;
  ticket_ = run.ticket;
  first_ = n_cached(sequence);
  try {
    has_begun = scorer_->begin(sequence, first_);
  } catch (const std::bad_alloc&) {  // the prompt is evaluated as a whole
  }
  if (!has_begun) make_dense(sequence, DenseReason::failed);
  return has_begun;
}

void SparsePrefill::finish(Sequence& sequence) {
  Run& run = *sequence.run;
  run.sparse_report.n_scored = static_cast<std::int32_t>(sequence.tokens.size()) - first_;
  try {
    make_sparse(sequence);
  } catch (const std::bad_alloc&) {
    return make_dense(sequence, DenseReason::failed);
  }
  if (!sequence.sparse) return make_dense(sequence, DenseReason::keep_all);
  run.awaits_scoring = false;
  run.sparse_report.is_sparse = true;
  run.sparse_report.n_selected = static_cast<std::int32_t>(sequence.sparse->kept.size());
  scorer_->end(drafts_with_scorer(run));
  ticket_ = 0;
}

// Whether the run guesses with the draft model, whose shadow holds the prompt now.
bool SparsePrefill::drafts_with_scorer(const Run& run) const noexcept {
  return run.max_draft_tokens > 0 && !run.constrained && speculation_.has_drafter(ModelDrafter::kName);
}

// Throws bad_alloc; the sequence may be sparse then.
void SparsePrefill::make_sparse(Sequence& sequence) {
  const auto tokens = std::span<const std::int32_t>(sequence.tokens).subspan(static_cast<std::size_t>(first_));
  std::vector<std::int32_t> kept = select_tokens(tokens, scorer_->importance(),
                                                 {.keep = sequence.run->sparse_request.keep,
                                                  .backbone = sequence.run->sparse_request.backbone,
                                                  .anchors = state_.options.sparse_anchors,
                                                  .control_tokens = state_.options.control_tokens});
  if (kept.size() == tokens.size()) return;
  for (std::int32_t& position : kept) position += first_;
  sequence.make_sparse(first_, std::move(kept));
  for (Sequence* sibling : sequence.run->siblings) {
    sibling->sparse.emplace(*sequence.sparse);
    sibling->sparse->history.reserve(sibling->tokens.capacity());
    sibling->run->start = sequence.run->start;
  }
}

void SparsePrefill::make_dense(Sequence& sequence, DenseReason reason) noexcept {
  Run& run = *sequence.run;
  run.awaits_scoring = false;
  run.sparse_report.reason = reason;
  run.sparse_report.is_sparse = false;
  run.sparse_report.n_selected = 0;
  sequence.make_dense();
  for (Sequence* sibling : run.siblings) {
    sibling->sparse.reset();
    sibling->run->start = run.start;
  }
  if (ticket_ != run.ticket || id_ != sequence.id) return;
  scorer_->end(false);
  ticket_ = 0;
}

void SparsePrefill::fall_back(Sequence& sequence) noexcept {
  make_dense(sequence, DenseReason::failed);
}

// If other runs generate, a scoring step takes about as long as the prefill rows in a step of the model.
int SparsePrefill::n_rows() const noexcept {
  const int most = scorer_->max_rows();
  const int per_decode = state_.options.prefill_per_decode;
  if (n_decode_rows_ == 0 || per_decode == 0 || state_.scheduler.n_running() == 0) return most;
  const double n_of_model = std::max(kMinRows, per_decode * n_decode_rows_);
  const double n = n_of_model / std::max(scorer_->cost_of_row(), 1e-3);
  return std::max(1, static_cast<int>(std::min<double>(n, most)));
}

// Measures only steps with nothing but one prompt.
void SparsePrefill::learn(const Step& step, std::int64_t step_ns) noexcept {
  n_decode_rows_ = step.n_decode_rows;
  if (step.n_decode_rows > 0 || step.rows.size() != 1) return;
  model_.add(step.rows.front().first_position, step.n_prefill_rows, static_cast<double>(step_ns));
}

void SparsePrefill::forget(const Sequence& sequence) noexcept {
  if (scorer_ != nullptr) scorer_->forget(sequence);
}

}  // namespace imp
