#include "engine/data/section.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace imp {
namespace {

void require(bool is_valid, const std::string& field, const char* expected) {
  if (!is_valid) throw FieldInvalid(field, std::string("expected ") + expected);
}

void validate_marker(const Marker& marker, int n_tokens, const std::string& field) {
  require(marker.n_bytes >= 0, field, "at least 0 bytes");
  require(std::ranges::is_sorted(marker.steps), field, "ascending steps");
  require(std::ranges::all_of(marker.steps,
                              [&](const MarkerStep& step) {
                                return step.n_before >= 0 && step.n_before < marker.n_bytes && step.n_after >= 0 &&
                                       step.n_after <= marker.n_bytes && step.token >= 0 && step.token < n_tokens;
                              }),
          field, "steps between numbers of its bytes, with known tokens");
}

}  // namespace

int Marker::after(int n_before, std::int32_t token) const noexcept {
  for (;;) {
    const MarkerStep least{.n_before = n_before, .token = token, .n_after = 0};
    const auto found = std::ranges::lower_bound(steps, least);
    if (found != steps.end() && found->n_before == n_before && found->token == token) return found->n_after;
    if (is_first) return -1;
    if (n_before == 0) return 0;
    n_before = 0;
  }
}

void validate(const SectionBudget& budget, int n_tokens) {
  require(budget.most >= 0, "max_reasoning_tokens", "at least 0");
  if (budget.section == nullptr) return;
  const Section& section = *budget.section;
  validate_marker(section.opening, n_tokens, "opening");
  validate_marker(section.closing, n_tokens, "closing");
  require(section.closing.n_bytes > 0 && std::cmp_equal(section.closings.size(), section.closing.n_bytes), "closings",
          "one for each byte of the closing");
  for (const std::vector<std::int32_t>& tokens : section.closings) {
    const auto is_known = [n_tokens](std::int32_t token) { return token >= 0 && token < n_tokens; };
    require(!tokens.empty() && std::ranges::all_of(tokens, is_known), "closings", "known tokens");
  }
}

}  // namespace imp
