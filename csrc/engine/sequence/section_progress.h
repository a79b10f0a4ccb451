// Where a run's outputs are in its section.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/data/section.h"

namespace imp {

// A function of the outputs alone, so that guesses, chunks and preemption change nothing. Allocates nothing.
class SectionProgress {
 public:
  SectionProgress() = default;
  explicit SectionProgress(const SectionBudget& budget);

  // Whether an output may still be in the section.
  bool is_on() const noexcept { return place_ != Place::gone; }
  // What the next output should be: a token of the closing, if the section is full.
  std::optional<std::int32_t> next() const noexcept;
  // Takes the next output.
  void count(std::int32_t token) noexcept;

 private:
  enum class Place : std::uint8_t { before, inside, gone };

  bool is_full() const noexcept { return place_ == Place::inside && n_inside_ >= budget_.most; }
  void close() noexcept;

  SectionBudget budget_;
  Place place_ = Place::gone;
  int n_marked_ = 0;  // bytes of the opening or the closing that are there
  int n_inside_ = 0;
  std::size_t n_written_ = 0;  // the last outputs that are tokens of the closing, in a full section
};

}  // namespace imp
