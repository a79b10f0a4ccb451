// What the masks of guesses cost, and what asking the text side for guesses gains.
#pragma once

namespace imp {

// Each step of a constrained run is followed by a wait for the text side. If it is asked for guesses, it looks for them
// and computes one more mask for each one. The added wait is divided into a price for each guess and a price for the
// search. A price is learned for each sequence, because constraints differ, and for all.
class MaskCosts {
 public:
  // The text side answered without being asked for guesses.
  void add_plain(double wait_ns) noexcept;
  // It was asked, and gave n_guesses. `extra`: the time that this added, in waits without.
  void add_asked(int n_guesses, double extra) noexcept;
  // The guesses that it gave were verified.
  void add_right(int n_right) noexcept { n_right_ += n_right; }

  bool is_known() const noexcept { return plain_ns_ > 0; }
  bool has_asked() const noexcept { return n_asked_ > 0; }
  double plain_ns() const noexcept { return plain_ns_; }
  // The answers since the last one without guesses.
  int n_since_plain() const noexcept { return n_since_plain_; }
  // The wait that n guesses add, and the guesses and right guesses that one request for them brings. With few
  // measurements, these are the means over all sequences.
  double extra_ns(double n_guesses, const MaskCosts& of_all) const noexcept;
  double guesses_per_ask(const MaskCosts& of_all) const noexcept;
  double right_per_ask(const MaskCosts& of_all) const noexcept;

 private:
  // In waits for one mask. Before anything is measured, a guess is expected to cost as much as two.
  double price() const noexcept;
  double shrunk(double sum, double prior) const noexcept;

  static constexpr double kPriorPrice = 2;
  static constexpr double kPriorWeight = 4;  // times of asking
  static constexpr double kMaxAsked = 32;    // then the sums are halved
  static constexpr double kMaxChange = 4;    // a wait without guesses counts as at most so many times the mean

  double plain_ns_ = 0;  // running mean; 0: nothing is measured
  int n_since_plain_ = 0;
  // Sums over the times that it was asked.
  double n_asked_ = 0;
  double n_guesses_ = 0;
  double n_right_ = 0;
  double extra_ = 0;  // in waits for one mask
};

}  // namespace imp
