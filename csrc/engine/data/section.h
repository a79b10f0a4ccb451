// A section of a run's outputs, such as reasoning, and how many outputs it may have.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

namespace imp {

// How many bytes of a text the outputs end with, before a token and after it.
struct MarkerStep {
  std::int32_t n_before = 0;
  std::int32_t token = 0;
  std::int32_t n_after = 0;

  auto operator<=>(const MarkerStep&) const = default;
};

// A text that outputs spell, in any division into tokens.
struct Marker {
  std::int32_t n_bytes = 0;       // 0: outputs never spell it
  std::vector<MarkerStep> steps;  // ascending. A token without a step counts as after 0 bytes, or leads there.
  bool is_first = false;          // a token without a step means that outputs never spell it

  // The bytes that are there after the token; -1: never.
  int after(int n_before, std::int32_t token) const noexcept;
};

struct Section {
  Marker opening;
  Marker closing;
  bool recurs = false;  // it may open again
  // The tokens that close a full section, by the number of bytes of `closing` that are there.
  std::vector<std::vector<std::int32_t>> closings;
};

struct SectionBudget {
  std::shared_ptr<const Section> section;  // null: there is no bound
  std::int32_t most = 0;                   // outputs between opening and closing, in all sections of the run
  bool is_open = false;                    // the outputs begin in the section
};

// Throws InvalidArgument(FIELD_INVALID) unless the numbers are in range and the ids below n_tokens.
void validate(const SectionBudget& budget, int n_tokens);

}  // namespace imp
