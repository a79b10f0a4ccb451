// How large a piece of a medium may be, by measured times.
#pragma once

#include "base/running_mean.h"

namespace imp {

// An encoder counts its work by products: so many are worth a row of a prompt. But one of its products may take several
// times as long as one of the model's, whose weights may be smaller numbers. So the measured times of both decide what
// takes as long as some rows of a prompt. Without measured times, the encoder's count does.
class PiecePace {
 public:
  // A step of the model beside which nothing was encoded.
  void add_step(int n_decode_rows, int n_prefill_rows, double ns) noexcept;
  // A piece that was worth n_rows by the encoder's count.
  void add_piece(int n_rows, double ns) noexcept;

  // By the encoder's count, the rows whose work takes as long as n_rows of a prompt.
  int rows_to_encode(int n_rows) const noexcept;
  // The reverse.
  int rows_of_prompt(int n_encoded) const noexcept;
  // The time of the work that is worth a row; 0: it is unknown.
  double encoded_row_ns() const noexcept { return encoded_row_ns_.value(); }

 private:
  double ratio() const noexcept;

  bool has_encoded_ = false;
  RunningMean decode_ns_;      // of a step without prefill rows
  RunningMean prompt_row_ns_;  // what a prefill row adds
  RunningMean encoded_row_ns_;
};

}  // namespace imp
