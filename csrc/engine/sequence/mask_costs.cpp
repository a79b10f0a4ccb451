// Running sums, shrunk to the means of all sequences.
#include "engine/sequence/mask_costs.h"

#include <algorithm>

namespace imp {
namespace {

constexpr double kPriorGuesses = 2;
constexpr double kPriorRight = 1;

}  // namespace

void MaskCosts::add_plain(double wait_ns) noexcept {
  n_since_plain_ = 0;
  if (!(wait_ns > 0)) return;
  const double counted = plain_ns_ > 0 ? std::min(wait_ns, kMaxChange * plain_ns_) : wait_ns;
  plain_ns_ += plain_ns_ > 0 ? (counted - plain_ns_) / 8 : counted;
}

void MaskCosts::add_asked(int n_guesses, double extra) noexcept {
  ++n_since_plain_;
  if (n_asked_ >= kMaxAsked) {
    for (double* sum : {&n_asked_, &n_guesses_, &n_right_, &extra_}) *sum /= 2;
  }
  ++n_asked_;
  n_guesses_ += n_guesses;
  extra_ += extra;
}

double MaskCosts::price() const noexcept {
  return has_asked() ? extra_ / (n_asked_ + n_guesses_) : kPriorPrice;
}

double MaskCosts::extra_ns(double n_guesses, const MaskCosts& of_all) const noexcept {
  const double price = (extra_ + kPriorWeight * of_all.price()) / (n_asked_ + n_guesses_ + kPriorWeight);
  return plain_ns_ * price * (1 + n_guesses);
}

double MaskCosts::shrunk(double sum, double prior) const noexcept {
  return (sum + kPriorWeight * prior) / (n_asked_ + kPriorWeight);
}

double MaskCosts::guesses_per_ask(const MaskCosts& of_all) const noexcept {
  return shrunk(n_guesses_, of_all.shrunk(of_all.n_guesses_, kPriorGuesses));
}

double MaskCosts::right_per_ask(const MaskCosts& of_all) const noexcept {
  return shrunk(n_right_, of_all.shrunk(of_all.n_right_, kPriorRight));
}

}  // namespace imp
