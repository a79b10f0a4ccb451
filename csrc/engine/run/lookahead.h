// Overlap scheduling: the host plans step N+1 while the device still runs step N.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/step/step.h"

namespace imp {

// Between assume() and undo() each sequence looks as it will after the step in flight, so that the scheduler can plan
// the next step. The token that a sequence draws is a placeholder: only the device knows it yet.
class Lookahead {
 public:
  explicit Lookahead(std::size_t max_running) { before_.reserve(max_running); }

  // Whether the next step can start before the host knows the tokens of this one. It cannot if the host takes part in
  // the choice of a token (masks, penalties), if a run draws its first output, or if guesses are to be verified.
  static bool is_possible(const Step& step) noexcept;

  void assume(const Step& step, int max_context) noexcept;
  void undo() noexcept;

 private:
  struct Before {
    Sequence* sequence = nullptr;
    int held = 0;
    std::size_t n_tokens = 0;
    std::int32_t state = kNoSlot;
    int state_tokens = 0;
  };
  std::vector<Before> before_;
};

}  // namespace imp
