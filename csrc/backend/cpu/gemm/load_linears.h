// Reads weights and packs them, on all threads of a pool.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/gemm/cpu_linear.h"
#include "base/arena.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// Each byte is read once, into a buffer that a core's cache holds, and packed from there: there is never a second copy.
// The sources are read from several threads at once. Throws what they throw, ModelError where a shape cannot be, and
// ResourceExhausted(NO_MEMORY).
std::vector<std::unique_ptr<CpuLinear>> load_cpu_linears(std::span<const LinearRequest> requests, Arena& arena,
                                                         ThreadPool& pool, const BytesRead& progress);

std::unique_ptr<CpuLinear> load_cpu_linear(WeightSource source, GemmPlan plan, Arena& arena, ThreadPool& pool);

}  // namespace imp::cpu
