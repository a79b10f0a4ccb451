// The results of a step's draws, and the outputs that take the place of drawn ones.
#include <cstddef>
#include <optional>

#include "engine/data/token_mask.h"
#include "engine/step/step_executor.h"

namespace imp {
namespace {

// An output that is given takes the place of the token that was drawn.
void force(Draw& draw) {
  const Run& run = *draw.sequence->run;
  const auto output = static_cast<std::size_t>(run.n_outputs + draw.n_guesses_before);
  if (output < run.forced.size() && draw.result.status == SampleStatus::ok) draw.result.token = run.forced[output];
}

// Whether the masks of the output allow a token.
bool may_be(const Draw& draw, std::int32_t token) {
  const Run& run = *draw.sequence->run;
  const std::int32_t output = run.n_outputs + draw.n_guesses_before;
  const OutputMask* mask = run.constrained ? run.mask(output) : nullptr;
  const bool is_first = output == 0 && !run.allowed.empty();
  return (mask == nullptr || allows(mask->allowed, token)) && (!is_first || allows(run.allowed, token));
}

}  // namespace

void StepExecutor::assign_results(Step& step) {
  SectionProgress section;  // after the guesses before a draw
  for (Draw& draw : step.draws) {
    if (!draw.is_drawn()) continue;
    draw.result = step.results[static_cast<std::size_t>(draw.request)];
    force(draw);
    if (draw.n_guesses_before == 0) section = draw.sequence->run->section;
    if (!section.is_on()) continue;
    const std::optional<std::int32_t> token = section.next();
    if (token && may_be(draw, *token)) replace(draw, *token);
    section.count(draw.guess);
  }
}

// The token takes the place of the one that was drawn, with the log probability that the model gives it.
void StepExecutor::replace(Draw& draw, std::int32_t token) {
  if (draw.result.status != SampleStatus::ok || draw.result.token == token) return;
  draw.result.token = token;
  if (!draw.sequence->run->returns.logprobs) return;
  const ScoreRequest request{draw.logits_row, token, {}};
  SampleResult scored;
  backend_.score(logits_, {&request, 1}, {&scored, 1});
  draw.result.logprob = scored.logprob;
}

}  // namespace imp
