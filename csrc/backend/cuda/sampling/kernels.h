// The sampler's kernels, as its host side launches them.
#pragma once

#include "backend/cuda/device/stream.h"
#include "backend/cuda/sampling/data.h"
#include "backend/rows.h"

namespace imp::cuda {

// Pointers of the device.
struct SamplingMemory {
  const Asked* asked = nullptr;
  const Adjustment* adjustments = nullptr;
  const std::uint32_t* masks = nullptr;
  Answer* answers = nullptr;
  Candidate* candidates = nullptr;
  Rows adjusted;  // [requests]
};

void adjust_rows(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory);
// Before choose_tokens: the status and the greatest logit of each request's row, and what is to be told of it.
void report_rows(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory);
void choose_tokens(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory);

}  // namespace imp::cuda
