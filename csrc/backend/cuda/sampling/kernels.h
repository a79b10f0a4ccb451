// The sampler's kernels, as host functions that launch them.
#pragma once

#include "backend/cuda/device/stream.h"
#include "backend/cuda/sampling/data.h"
#include "backend/rows.h"

namespace imp::cuda {

// Device pointers.
struct SamplingMemory {
  const DeviceRequest* requests = nullptr;
  const Adjustment* adjustments = nullptr;
  const std::uint32_t* masks = nullptr;
  DeviceResult* results = nullptr;
  Candidate* candidates = nullptr;
  Rows adjusted;  // [requests]
};

void adjust_rows(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory);
// Runs before choose_tokens: the status and greatest logit of each request's row, and the data to report.
void report_rows(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory);
void choose_tokens(Stream& stream, Rows logits, int n_requests, const SamplingMemory& memory);

}  // namespace imp::cuda
