// The share of guesses that are right, measured for each kind of guess.
#pragma once

#include <array>
#include <cstdint>

namespace imp {

// Of the first guess of a round, and of one whose guesses before it are right.
struct RightShares {
  double first = 0.6;
  double later = 0.6;
};

// Two counts for each confidence class of a drafter. More would be worse: a class whose guesses are never tried
// keeps its prior, and then its guesses are never tried.
class Acceptance {
 public:
  static constexpr int kClasses = 16;

  // A guess that was tried: all guesses before it were right.
  void add(int confidence, bool is_first, bool is_right) noexcept;
  // The share counts like kPriorWeight more guesses of the prior.
  double share(int confidence, bool is_first, double prior) const noexcept;

 private:
  static constexpr double kPriorWeight = 8;
  // At this many tries the counts are halved, so that the share follows the text. A round has one first guess and many
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
