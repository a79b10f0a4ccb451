// Runs the thread pool under the thread sanitizer: several callers, threads that spin and threads that park, loops of
// few and of many tasks. Fails if a write of a task is lost or happens twice.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace {

using namespace imp;

constexpr int kCallers = 3;

// The loops of each caller write to its memory without atomics; only the pool orders the writes.
void loops_of_one_caller(ThreadPool& pool, int n_loops, bool& is_whole) {
  std::vector<std::int64_t> counts;
  for (int loop = 0; loop < n_loops; ++loop) {
    const int n_tasks = 1 + loop % 9;
    counts.assign(static_cast<std::size_t>(n_tasks), loop);
    pool.run(n_tasks, [&](int task, int) { counts[static_cast<std::size_t>(task)] += task + 1; });
    for (int task = 0; task < n_tasks; ++task) {
      if (counts[static_cast<std::size_t>(task)] != loop + task + 1) is_whole = false;
    }
  }
}

bool hold(int n_threads, std::int64_t spin_us, int n_loops) {
  ThreadPoolOptions options;
  options.n_threads = n_threads;
  options.spin_us = spin_us;
  ThreadPool pool(options);
  bool whole[kCallers] = {true, true, true};
  std::vector<std::thread> callers;
  for (bool& is_whole : whole) callers.emplace_back([&] { loops_of_one_caller(pool, n_loops, is_whole); });
  for (std::thread& caller : callers) caller.join();
  return whole[0] && whole[1] && whole[2];
}

}  // namespace

int main(int argc, char** argv) {
  const int n_loops = argc > 1 ? std::atoi(argv[1]) : 1000;
  for (const int n_threads : {1, 2, 5}) {
    for (const std::int64_t spin_us : {0, 20}) {
      if (hold(n_threads, spin_us, n_loops)) continue;
      std::fprintf(stderr, "pool_threads: a task of %d threads was lost or ran twice\n", n_threads);
      return 1;
    }
  }
  std::printf("pool_threads: %d loops of %d callers\n", n_loops, kCallers);
  return 0;
}
