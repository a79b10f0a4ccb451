// The acceptance rate of guesses, measured for each kind of guess.
#pragma once

#include <array>
#include <cstdint>

namespace imp {

// Acceptance rates: of the first guess of a round, and of a later one if all guesses before it are right.
struct RightShares {
  double first = 0.6;
  double later = 0.6;
};

// Two counts for each confidence class of a drafter: first guesses and later ones. Finer classes would be worse: a
// class that is never tried keeps its prior, and a low prior prevents that it is ever tried.
class Acceptance {
 public:
  static constexpr int kClasses = 16;

  // Counts a guess that was verified. All guesses before it were right.
  void add(int confidence, bool is_first, bool is_right) noexcept;
  // The acceptance rate. `prior` counts as kPriorWeight guesses.
  double share(int confidence, bool is_first, double prior) const noexcept;

 private:
  static constexpr double kPriorWeight = 8;
  // At this many guesses the counts are halved, so that the rate follows the text. A round has one first guess and many
  // later ones.
  static constexpr int kMaxFirst = 32;
  static constexpr int kMaxLater = 128;
  struct Count {
    std::uint8_t n_tried = 0;
    std::uint8_t n_right = 0;
  };
  std::array<std::array<Count, 2>, kClasses> counts_{};
};

}  // namespace imp
