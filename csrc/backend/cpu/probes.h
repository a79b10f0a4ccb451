// What this machine can do right now: the ceilings that speeds are given as fractions of.
#pragma once

#include <cstddef>

#include "backend/gemm.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// Each runs on all threads of the pool at once, for about the given time, with the best instructions that `caps`
// allows, and returns a rate over all threads. They are for measuring beside a benchmark, in the same run.
double probe_read_bytes_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds);
double probe_f32_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds);
double probe_bf16_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds);
double probe_int8_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds);

}  // namespace imp::cpu
