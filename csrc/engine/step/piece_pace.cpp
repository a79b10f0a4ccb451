// Means of the times, and their ratio.
#include "engine/step/piece_pace.h"

#include <algorithm>
#include <cmath>

namespace imp {
namespace {

// Fewer prefill rows measure the fixed time of a step rather than that of a row.
constexpr int kMinRows = 16;
// How long the first piece takes is unknown, so it is this part of the others.
constexpr int kFirstPart = 4;
// A wrong measurement makes pieces at most so much smaller or larger.
constexpr double kMaxRatio = 8;

bool is_time(double ns) {
  return ns > 0 && std::isfinite(ns);
}

}  // namespace

void PiecePace::add_step(int n_decode_rows, int n_prefill_rows, double ns) noexcept {
  if (!is_time(ns)) return;
  if (n_prefill_rows == 0) return decode_ns_.add(ns);
  if (n_prefill_rows < kMinRows || (n_decode_rows > 0 && decode_ns_.value() == 0)) return;
  const double added_ns = n_decode_rows > 0 ? ns - decode_ns_.value() : ns;
  if (is_time(added_ns)) prompt_row_ns_.add(added_ns / n_prefill_rows);
}

void PiecePace::add_piece(int n_rows, double ns) noexcept {
  has_encoded_ = true;
  if (is_time(ns)) encoded_row_ns_.add(ns / std::max(1, n_rows));
}

double PiecePace::ratio() const noexcept {
  if (prompt_row_ns_.value() == 0 || encoded_row_ns_.value() == 0) return 1;
  return std::clamp(prompt_row_ns_.value() / encoded_row_ns_.value(), 1 / kMaxRatio, kMaxRatio);
}

int PiecePace::rows_to_encode(int n_rows) const noexcept {
  if (!has_encoded_) return std::max(1, n_rows / kFirstPart);
  return std::max(1, static_cast<int>(n_rows * ratio()));
}

int PiecePace::rows_of_prompt(int n_encoded) const noexcept {
  return static_cast<int>(std::ceil(n_encoded / ratio()));
}

}  // namespace imp
