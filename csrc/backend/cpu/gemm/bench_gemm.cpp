// The benchmark: random weights, loaded as a model's, multiplied in turn.
#include "backend/cpu/gemm/bench_gemm.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "backend/cpu/gemm/gemm_runner.h"
#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/gemm/load_linears.h"
#include "base/error.h"

namespace imp::cpu {

namespace {

// Random bytes make valid weights. Without this bit no float among them is infinite or NaN, whatever the type.
constexpr std::uint64_t kFinite = 0xBFBFBFBFBFBFBFBF;

std::uint64_t next_random(std::uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

WeightSource random_source(const GemmProblem& problem) {
  const auto row = static_cast<std::size_t>(*row_bytes(problem.weight, problem.k));
  return {"bench", problem, [row](std::int64_t first, std::int64_t n_rows, std::byte* out) {
            std::uint64_t state = 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(first);
            for (std::size_t i = 0; i < row * static_cast<std::size_t>(n_rows); ++i) {
              out[i] = static_cast<std::byte>((next_random(state) & kFinite) >> 24 & 0xFF);
            }
          }};
}

}  // namespace

GemmBenchResult bench_gemm(const GemmBench& bench, const DeviceCaps& caps, ThreadPool& pool) {
  const GemmRegistry registry(kernel_list(), caps);
  const auto kernels = registry.kernels();
  const auto named = std::ranges::find(kernels, bench.kernel, &GemmKernel::name);
  if (named == kernels.end()) {
    throw FieldInvalid("kernel", "no " + std::string(bench.kernel) + "; imp kernels lists them");
  }
  const GemmProblem problem{named->any_weight ? bench.weight : named->weight, bench.n, bench.k};
  const GemmOverride only{std::string(traits(problem.weight).name), std::string(bench.kernel)};
  GemmPlan plan = registry.plan(problem, "", {&only, 1});
  plan.kernels = {{&*named, kAnyRows}};  // also for fewer rows than it is preferred for

  Arena arena;
  std::vector<std::unique_ptr<CpuLinear>> weights;
  std::vector<const Linear*> linears;
  do {
    weights.push_back(load_cpu_linear(random_source(problem), plan, arena, pool));
    linears.push_back(weights.back().get());
  } while (static_cast<std::int64_t>(weights.size() * weights.front()->n_bytes()) < bench.total_bytes);

  GemmRunner runner(registry, pool);
  runner.reserve({.max_rows = bench.m, .weights = linears});
  std::vector<float> x(static_cast<std::size_t>(bench.m * bench.k)), out(static_cast<std::size_t>(bench.m * bench.n));
  std::uint64_t state = 1;
  for (float& value : x) value = static_cast<float>(next_random(state) >> 40) * 0x1p-23F - 1;

  using Time = std::chrono::steady_clock;
  const auto walk = [&] {
    for (const Linear* weight : linears) {
      const LinearTerm term{weight, nullptr, {out.data(), bench.m, static_cast<int>(bench.n), bench.n}};
      runner.run({x.data(), bench.m, static_cast<int>(bench.k), bench.k}, {&term, 1});
    }
  };
  walk();
  GemmBenchResult result;
  result.ops = 2 * bench.m * bench.n * bench.k;
  result.bytes = static_cast<std::int64_t>(weights.front()->n_bytes());
  for (const auto start = Time::now(); std::chrono::duration<double>(Time::now() - start).count() < bench.seconds;) {
    const auto begin = Time::now();
    walk();
    result.seconds.push_back(std::chrono::duration<double>(Time::now() - begin).count() /
                             static_cast<double>(linears.size()));
  }
  return result;
}

}  // namespace imp::cpu
