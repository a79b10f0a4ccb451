// Measures the machine's limits now (memory bandwidth, peak operations): the ceilings of a roofline.
#pragma once

#include <cstddef>

#include "backend/gemm.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// Each runs on all threads of the pool for about the given time, with the best instructions that `caps` allows. Returns
// the rate of all threads together. Run them right before or after a benchmark.
double probe_read_bytes_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds);
double probe_f32_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds);
double probe_bf16_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds);
double probe_int8_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds);

}  // namespace imp::cpu
