// Outputs of a generation that broke: its caller has them, and goes on behind them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/commands.h"

namespace imp {

// What came of one sequence.
struct ToldOutputs {
  std::vector<std::int32_t> tokens;
  bool is_finished = false;  // its end came too
};

// The commands of a generation that goes on: an OpenCommand and a RunCommand for each sequence, the run's own and its
// siblings, with its number as the stream. A run evaluates all told outputs but the last, which it draws again, so that
// the reader can compare. A finished sequence draws nothing else. Without told outputs they are the two commands.
//
// Throws InvalidArgument(FIELD_INVALID) unless there are told outputs of each sequence, or of none, and no more of one
// than the run's limit.
std::vector<Command> commands_behind(std::vector<ToldOutputs> told, OpenCommand open, RunCommand run);

}  // namespace imp
