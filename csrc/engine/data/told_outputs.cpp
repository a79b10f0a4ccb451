#include "engine/data/told_outputs.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "base/error.h"

namespace imp {
namespace {

int n_again(const ToldOutputs& told) {
  return std::max(static_cast<int>(told.tokens.size()) - 1, 0);
}

RunLimits limits_behind(const ToldOutputs& told, RunLimits limits) {
  const int n_kept = n_again(told);
  if (limits.max_outputs > 0) limits.max_outputs -= n_kept;
  limits.min_outputs = std::max(limits.min_outputs - n_kept, 0);
  if (told.is_finished) {
    limits.max_outputs = told.tokens.empty() ? 0 : 1;
    limits.min_outputs = std::min(limits.min_outputs, limits.max_outputs);
  }
  return limits;
}

void check_told(const std::vector<ToldOutputs>& told, const RunCommand& run) {
  const std::size_t n_sequences = 1 + run.siblings.size();
  if (told.size() != n_sequences) {
    throw FieldInvalid("told", std::to_string(told.size()) + " sequences, expected " + std::to_string(n_sequences));
  }
  if (!run.forced.empty()) throw FieldInvalid("forced", "set together with told outputs, expected one of the two");
  for (std::size_t i = 0; i < told.size(); ++i) {
    const std::size_t n_told = told[i].tokens.size();
    if (run.limits.max_outputs < 0 || std::cmp_less_equal(n_told, run.limits.max_outputs)) continue;
    throw FieldInvalid("told[" + std::to_string(i) + "]",
                       std::to_string(n_told) + " outputs, expected at most " + std::to_string(run.limits.max_outputs));
  }
}

}  // namespace

std::vector<Command> commands_behind(std::vector<ToldOutputs> told, OpenCommand open, RunCommand run) {
  std::vector<Command> commands;
  if (told.empty()) {
    commands.emplace_back(std::move(open));
    commands.emplace_back(std::move(run));
    return commands;
  }
  check_told(told, run);
  std::vector<SequenceId> ids{run.sequence};
  ids.insert(ids.end(), run.siblings.begin(), run.siblings.end());
  run.siblings.clear();
  if (!run.base) run.base = static_cast<std::int32_t>(run.tokens.size());
  commands.reserve(2 * told.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    open.sequence = ids[i];
    open.stream = static_cast<std::uint32_t>(i);
    RunCommand own = run;
    own.sequence = ids[i];
    own.tokens.insert(own.tokens.end(), told[i].tokens.begin(), told[i].tokens.begin() + n_again(told[i]));
    own.limits = limits_behind(told[i], std::move(own.limits));
    commands.emplace_back(open);
    commands.emplace_back(std::move(own));
  }
  return commands;
}

}  // namespace imp
