// What is taken for granted of a step, and taken back.
#include "engine/assumption.h"

#include <algorithm>

#include "backend/adjustments.h"

namespace imp {
namespace {

// It draws one token, as it did before and will again, and nothing of that is the host's.
bool goes_on_alone(const Sequence& sequence) noexcept {
  const Run& run = *sequence.run;
  return run.started && run.siblings.empty() && !run.constrained && !has_penalties(sequence.params);
}

// The run ends with the token that it draws now, whatever that is.
bool is_last_output(const Sequence& sequence, int max_context) noexcept {
  const Run& run = *sequence.run;
  return run.n_outputs + 1 == run.limits.max_outputs || static_cast<int>(sequence.tokens.size()) + 1 > max_context;
}

}  // namespace

bool Assumption::is_possible(const Evaluation& step) noexcept {
  return step.is_under_way && std::ranges::all_of(step.rows, [](const Evaluation::Row& row) {
           return !row.planned.last || goes_on_alone(*row.planned.sequence);
         });
}

void Assumption::make(const Evaluation& step, int max_context) noexcept {
  std::size_t next_draw = 0;
  for (const Evaluation::Row& row : step.rows) {
    Sequence& sequence = *row.planned.sequence;
    before_.push_back({&sequence, sequence.held, sequence.tokens.size()});
    sequence.held += row.planned.n_rows;
    if (!row.planned.last) continue;
    const std::int32_t drawn = drawn_token(step.draws[next_draw++].request);
    if (!is_last_output(sequence, max_context)) sequence.tokens.push_back(drawn);
  }
}

void Assumption::withdraw() noexcept {
  for (const Before& before : before_) {
    before.sequence->held = before.held;
    before.sequence->tokens.resize(before.n_tokens);
  }
  before_.clear();
}

}  // namespace imp
