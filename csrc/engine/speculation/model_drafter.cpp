// Runs the rounds of a draft model.
#include "engine/speculation/model_drafter.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "engine/speculation/drawn_guess.h"

namespace imp {
namespace {

// The smallest chunk of a prompt, in rows, and its size while nothing is measured.
constexpr int kMinChunk = 16;
// The assumed time of a prefill row, in units of the time of a guess, until it is measured.
constexpr double kPriorPromptRow = 0.25;

}  // namespace

ModelDrafter::ModelDrafter(std::shared_ptr<DraftSteps> steps, double assumed_cost)
    : steps_(std::move(steps)), assumed_cost_(assumed_cost) {
  drafting_.reserve(static_cast<std::size_t>(steps_->max_sequences()));
}

double ModelDrafter::cost_of_token() const noexcept {
  const bool is_measured = token_ns_.value() > 0 && single_row_ns_.value() > 0;
  return is_measured ? token_ns_.value() / single_row_ns_.value() : assumed_cost_;
}

double ModelDrafter::start_cost(const Sequence& sequence) const noexcept {
  const Shadow* const shadow = shadows().find(sequence.id);
  const int n_held = shadow != nullptr ? shadow->copy.held : 0;
  const int n_lacking = static_cast<int>(sequence.text_after_media().size()) - n_held;
  if (n_lacking <= kMinChunk) return 0;
  const bool is_measured = prompt_row_ns_.value() > 0 && single_row_ns_.value() > 0;
  const double row_cost =
      is_measured ? prompt_row_ns_.value() / single_row_ns_.value() : kPriorPromptRow * cost_of_token();
  return n_lacking * row_cost;
}

void ModelDrafter::observe(const Step& step) {
  const auto ns =
      static_cast<double>(step.forward.end_ns - step.forward.begin_ns + step.sample.end_ns - step.sample.begin_ns);
  if (ns <= 0) return;
  step_ns_.add(ns);
  if (step.n_decode_rows + step.n_prefill_rows + step.n_guess_rows == 1) single_row_ns_.add(ns);
}

void ModelDrafter::draft(std::span<DraftRequest> requests) {
  if (is_off()) return;
  ++round_;
  choose(requests);
  if (drafting_.empty()) return;
  plan_first_step();
  while (!steps_->is_empty()) {
    if (!run_step() || !take_draws()) return fail_round();
    plan_next_step();
  }
  const auto has_guesses = [](const Drafting& drafting) { return !drafting.request->guesses.empty(); };
  if (std::ranges::any_of(drafting_, has_guesses)) n_failures_ = 0;
}

void ModelDrafter::choose(std::span<DraftRequest> requests) {
  drafting_.clear();
  for (DraftRequest& request : requests) {
    const int n_wanted = n_possible(request);
    if (n_wanted <= 0 || static_cast<int>(drafting_.size()) == steps_->max_sequences()) continue;
    try {
      Shadow* shadow = steps_->shadows().update(*request.sequence, round_);
      if (shadow != nullptr) drafting_.push_back({.request = &request, .shadow = shadow, .n_wanted = n_wanted});
    } catch (const std::bad_alloc&) {  // no memory for another shadow: the sequence gets no guesses
    }
  }
}

// The number of guesses that the draft model's context allows. The draft model does not evaluate the last guess.
int ModelDrafter::n_possible(const DraftRequest& request) const noexcept {
  const Sequence& sequence = *request.sequence;
  if (sequence.run->constrained) return 0;
  const auto is_beyond = [this](const LogitBias& bias) { return bias.token >= steps_->vocab_size(); };
  if (std::ranges::any_of(sequence.params.logit_bias, is_beyond)) return 0;
  return std::min(request.n_wanted, steps_->max_context() - static_cast<int>(sequence.text_after_media().size()) + 1);
}

// The number of prefill rows that take a quarter of the time of a step of the model.
int ModelDrafter::n_prompt_rows() const noexcept {
  const auto most = steps_->max_rows() - static_cast<int>(drafting_.size());
  if (prompt_row_ns_.value() == 0) return std::min(kMinChunk, most);
  const double n_rows = step_ns_.value() / 4 / prompt_row_ns_.value();
  return std::min(most, std::max(kMinChunk, static_cast<int>(std::min(n_rows, 1e6))));
}

// Plans to evaluate the tokens that the shadows lack. A shadow whose tokens do not all fit has no guesses in this
// round.
void ModelDrafter::plan_first_step() {
  steps_->clear();
  int n_left = n_prompt_rows();
  for (Drafting& drafting : drafting_) {
    const int n_lacking = drafting.shadow->copy.n_left() - 1;
    const bool is_last = n_lacking <= n_left;
    const int n_rows = is_last ? n_lacking + 1 : n_left;
    if (!is_last) drafting.n_wanted = 0;
    n_left -= std::min(n_left, n_lacking);
    if (n_rows > 0) add_rows(drafting, n_rows);
  }
}

void ModelDrafter::plan_next_step() {
  steps_->clear();
  for (Drafting& drafting : drafting_) {
    if (drafting.n_wanted > static_cast<int>(drafting.request->guesses.size())) add_rows(drafting, 1);
  }
}

void ModelDrafter::add_rows(Drafting& drafting, int n_rows) {
  if (!steps_->add(*drafting.shadow, n_rows)) drafting.n_wanted = 0;
}

// Returns false if the step failed.
bool ModelDrafter::run_step() {
  const std::int64_t begin = steps_->now();
  if (!steps_->run()) return false;
  const auto ns = static_cast<double>(steps_->now() - begin);
  const int n_rows = steps_->n_rows();
  if (n_rows == static_cast<int>(steps_->n_sequences())) {
    token_ns_.add(ns / n_rows);
  } else if (n_rows >= kMinChunk) {
    prompt_row_ns_.add(ns / n_rows);
  }
  return true;
}

// Returns false if a row was not finite.
bool ModelDrafter::take_draws() {
  Step& step = steps_->step();
  auto drafting = drafting_.begin();
  std::size_t next_draw = 0;
  bool is_finite = true;
  for (const StepRow& row : step.rows) {
    while (&drafting->shadow->copy != row.planned.sequence) ++drafting;
    if (row.planned.last) is_finite = take(step.draws[next_draw++], *drafting) && is_finite;
  }
  return is_finite;
}

bool ModelDrafter::take(const Draw& draw, Drafting& drafting) {
  Sequence& copy = drafting.shadow->copy;
  if (draw.result.status == SampleStatus::non_finite) {
    steps_->shadows().blocks().forget(copy.table);
    steps_->shadows().clear(*drafting.shadow);
    return false;
  }
  std::vector<Guess>& guesses = drafting.request->guesses;
  const Run& run = *drafting.request->sequence->run;
  const std::int32_t token = draw.result.token;
  const auto n = static_cast<int>(guesses.size());
  if (draw.result.status != SampleStatus::ok || ends_run(run, token, n)) {
    drafting.n_wanted = n;
    return true;
  }
  guesses.push_back({.token = token, .confidence = confidence_of(draw.result.logprob)});
  copy.tokens.push_back(token);
  return true;
}

// The next round cuts the shadows to the tokens of their sequences.
void ModelDrafter::fail_round() noexcept {
  ++n_failures_;
  for (Drafting& drafting : drafting_) drafting.request->guesses.clear();
}

}  // namespace imp
