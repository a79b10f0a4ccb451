// Reads weights and packs them on all threads of a pool.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/gemm/cpu_linear.h"
#include "base/arena.h"
#include "base/thread_pool.h"

namespace imp::cpu {

// Reads each byte once into a buffer that fits a core's cache, and packs it from there. So memory never holds a second
// copy. Several threads read the sources at once. Throws the errors of the sources, ModelError for an impossible shape,
// and ResourceExhausted(NO_MEMORY).
std::vector<std::unique_ptr<CpuLinear>> load_cpu_linears(std::span<const LinearRequest> requests, Arena& arena,
                                                         ThreadPool& pool, const BytesRead& progress);

std::unique_ptr<CpuLinear> load_cpu_linear(WeightSource source, GemmPlan plan, Arena& arena, ThreadPool& pool);

}  // namespace imp::cpu
