// Times the loops of an instruction set on all threads together.
#include "backend/cpu/probes/probes.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "backend/cpu/probes/probe_loops.h"
#include "base/arena.h"

namespace imp::cpu {

namespace {

ProbeLoops loops_for([[maybe_unused]] const DeviceCaps& caps) {
#if IMP_X86
  if (caps.cpu.includes(needs::avx512bf16)) return probe_loops_avx512bf16();
  if (caps.cpu.includes(needs::avx512vnni)) return probe_loops_avx512vnni();
  if (caps.cpu.includes(needs::avx512)) return probe_loops_avx512();
  if (caps.cpu.includes(needs::avx2vnni)) return probe_loops_avx2vnni();
  if (caps.cpu.includes(needs::avx2)) return probe_loops_avx2();
#elif IMP_ARM
  if (caps.cpu.includes(needs::neondot)) return probe_loops_neondot();
#endif
  return probe_loops_generic();
}

// Repeats body(thread) on every thread, with a barrier before each round, until `seconds` have passed. Returns rounds
// per second.
template <class Body>
double rate(ThreadPool& pool, double seconds, const Body& body) {
  using Time = std::chrono::steady_clock;
  const int n_threads = pool.n_threads();
  std::int64_t n_rounds = 0;
  double busy = 0;
  while (busy < seconds) {
    std::atomic<int> missing{n_threads};
    const auto start = Time::now();
    pool.run(n_threads, [&](int, int thread) {
      missing.fetch_sub(1, std::memory_order_acq_rel);
      while (missing.load(std::memory_order_acquire) > 0) std::this_thread::yield();
      body(thread);
    });
    busy += std::chrono::duration<double>(Time::now() - start).count();
    ++n_rounds;
  }
  return static_cast<double>(n_rounds) / busy;
}

// Operations per second of a loop on registers with `ops` per round. Keeps its results, so that the compiler does not
// remove the loop.
template <class Result>
double ops_per_s(ThreadPool& pool, double seconds, Result (*multiply)(std::int64_t n_rounds), std::int64_t ops) {
  constexpr std::int64_t kRounds = 200'000;
  std::vector<Result> results(static_cast<std::size_t>(pool.n_threads()));
  const double rounds =
      rate(pool, seconds, [&](int thread) { results[static_cast<std::size_t>(thread)] = multiply(kRounds); });
  return rounds * static_cast<double>(kRounds * ops) * pool.n_threads();
}

}  // namespace

double probe_read_bytes_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds) {
  // More per thread than any current server cache has per core.
  constexpr std::size_t kBytes = std::size_t{128} << 20;
  const ProbeLoops loops = loops_for(caps);
  Arena arena;
  std::vector<std::shared_ptr<std::byte>> memory;
  for (int i = 0; i < pool.n_threads(); ++i) {
    memory.push_back(arena.allocate(kBytes));
    std::memset(memory.back().get(), i + 1, kBytes);
  }
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool.n_threads()));
  const double rounds = rate(pool, seconds, [&](int thread) {
    const auto t = static_cast<std::size_t>(thread);
    sums[t] += loops.read(memory[t].get(), kBytes);
  });
  return rounds * static_cast<double>(kBytes) * pool.n_threads();
}

double probe_f32_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds) {
  const ProbeLoops loops = loops_for(caps);
  return ops_per_s(pool, seconds, loops.multiply_f32, loops.f32_ops);
}

double probe_bf16_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds) {
  const ProbeLoops loops = loops_for(caps);
  return ops_per_s(pool, seconds, loops.multiply_bf16, loops.bf16_ops);
}

double probe_int8_ops_per_s(ThreadPool& pool, const DeviceCaps& caps, double seconds) {
  const ProbeLoops loops = loops_for(caps);
  return ops_per_s(pool, seconds, loops.multiply_int8, loops.int8_ops);
}

}  // namespace imp::cpu
