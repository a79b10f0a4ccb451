// Sequences as they will be when a step that is under way has ended, as far as the host can tell.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/step.h"

namespace imp {

// While it holds, the scheduler may plan the step after that one: what a sequence has drawn is a token that only the
// device knows. Used by the loop's thread; makes nothing but what it withdraws again.
class Assumption {
 public:
  explicit Assumption(std::size_t max_running) { before_.reserve(max_running); }

  // Whether the next step can be begun without what this one draws: it is not where the host has its part in the
  // choice, or in what a run does after its first.
  static bool is_possible(const Evaluation& step) noexcept;

  void make(const Evaluation& step, int max_context) noexcept;
  void withdraw() noexcept;

 private:
  struct Before {
    Sequence* sequence = nullptr;
    int held = 0;
    std::size_t n_tokens = 0;
  };
  std::vector<Before> before_;
};

}  // namespace imp
