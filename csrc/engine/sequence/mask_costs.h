// Measures what the masks of guesses cost, and how many right guesses the text side gives.
#pragma once

namespace imp {

// After each step a constrained run waits for the text side. If the text side is asked for guesses, it searches for
// them and computes one more mask for each guess. The wait that this adds is divided equally among the guesses and the
// search. This price is measured for each sequence, because constraints differ, and for all sequences together.
class MaskCosts {
 public:
  // The text side gave a mask, and was not asked for guesses.
  void add_plain(double wait_ns) noexcept;
  // The text side was asked for guesses and gave n_guesses. `extra`: the added wait, in units of plain_ns().
  void add_asked(int n_guesses, double extra) noexcept;
  // n_right of the guesses that it gave are right.
  void add_right(int n_right) noexcept { n_right_ += n_right; }

  bool is_known() const noexcept { return plain_ns_ > 0; }
  bool has_asked() const noexcept { return n_asked_ > 0; }
  double plain_ns() const noexcept { return plain_ns_; }
  // The number of answers with guesses since the last one without.
  int n_since_plain() const noexcept { return n_since_plain_; }
  // The expected wait that n guesses add, and the expected numbers of guesses and of right guesses in an answer. The
  // measurements of all sequences serve as the prior.
  double extra_ns(double n_guesses, const MaskCosts& of_all) const noexcept;
  double guesses_per_ask(const MaskCosts& of_all) const noexcept;
  double right_per_ask(const MaskCosts& of_all) const noexcept;

 private:
  // The cost of a guess, in units of plain_ns().
  double price() const noexcept;
  double shrunk(double sum, double prior) const noexcept;

  static constexpr double kPriorPrice = 2;
  static constexpr double kPriorWeight = 4;  // the prior counts as this many answers
  static constexpr double kMaxAsked = 32;    // at this many answers the sums are halved
  static constexpr double kMaxChange = 4;    // a wait without guesses counts as at most this many times the mean

  double plain_ns_ = 0;  // running mean; 0: nothing is measured
  int n_since_plain_ = 0;
  // Sums over the answers with guesses.
  double n_asked_ = 0;
  double n_guesses_ = 0;
  double n_right_ = 0;
  double extra_ = 0;  // in units of plain_ns_
};

}  // namespace imp
