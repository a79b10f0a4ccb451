// Applies the expected outcome of a step to its sequences, and reverts it.
#include "engine/run/lookahead.h"

#include <algorithm>

#include "backend/adjustments.h"
#include "backend/batch.h"
#include "engine/sequence/sequence.h"

namespace imp {
namespace {

// Whether the device can draw the next token without the host: there is no mask, penalty, output in place of a drawn
// one, sibling or list of positions.
bool draws_on_device(const Sequence& sequence) noexcept {
  const Run& run = *sequence.run;
  return run.started && run.siblings.empty() && !run.constrained && run.forced.empty() && !run.section.is_on() &&
         !sequence.sparse && !has_penalties(sequence.params);
}

// The run ends with the token that it draws now, whatever the token is.
bool is_last_output(const Sequence& sequence, int max_context) noexcept {
  const Run& run = *sequence.run;
  return run.n_outputs + 1 == run.limits.max_outputs || static_cast<int>(sequence.history().size()) + 1 > max_context;
}

}  // namespace

bool Lookahead::is_possible(const Step& step) noexcept {
  return step.is_in_flight && std::ranges::all_of(step.rows, [](const StepRow& row) {
           return !row.planned.last || (row.planned.n_guesses == 0 && draws_on_device(*row.planned.sequence));
         });
}

void Lookahead::assume(const Step& step, int max_context) noexcept {
  std::size_t next_draw = 0;
  for (const StepRow& row : step.rows) {
    Sequence& sequence = *row.planned.sequence;
    BlockTable& table = sequence.table;
    before_.push_back({&sequence, sequence.held, sequence.tokens.size(), table.state, table.state_tokens});
    sequence.held += row.planned.n_rows;
    if (row.state != kNoSlot) {  // the step in flight holds it
      table.state = row.state;
      table.state_tokens = sequence.held;
    }
    if (!row.planned.last) continue;
    const std::int32_t drawn = drawn_token(step.draws[next_draw++].request);
    if (!is_last_output(sequence, max_context)) sequence.tokens.push_back(drawn);
  }
}

void Lookahead::undo() noexcept {
  for (const Before& before : before_) {
    before.sequence->held = before.held;
    before.sequence->tokens.resize(before.n_tokens);
    before.sequence->table.state = before.state;
    before.sequence->table.state_tokens = before.state_tokens;
  }
  before_.clear();
}

}  // namespace imp
