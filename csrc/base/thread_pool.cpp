// The pool: threads spin for a while between loops, then park. Tasks are claimed from one atomic counter.
#include "base/thread_pool.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "base/error.h"
#include "base/float_mode.h"

namespace imp {

namespace {

void pause_cpu() noexcept {
#if IMP_X86
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits until `value` is no longer `old`. Spins first, since a wake-up by the kernel costs more than most ops.
template <class T>
void await_change(const std::atomic<T>& value, T old, std::int64_t spin_us) noexcept {
  constexpr int kPausesPerLook = 64;  // reading the clock costs about as much as a few pauses
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(spin_us));
  value.wait(old, std::memory_order_acquire);
}

[[noreturn]] void refuse_cpu(int cpu, const char* why) {
  throw FieldInvalid("cpus", std::to_string(cpu) + " " + why);
}

void require_cpus(const ThreadPoolOptions& options) {
  if (options.cpus.empty()) return;
  if (options.cpus.size() != static_cast<std::size_t>(options.n_threads)) {
    throw FieldInvalid(
        "cpus", std::to_string(options.cpus.size()) + " given for " + std::to_string(options.n_threads) + " threads");
  }
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (const int cpu : options.cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) {
      refuse_cpu(cpu, "is not a CPU this process may use");
    }
  }
#endif
}

}  // namespace

// One loop (job) at a time. `task`, `context` and `n_tasks` are written before `unclaimed` is raised, and stay until
// every task is done. A thread reads them only after claiming a task, which keeps the job alive. So a thread that wakes
// up late finds no task and reads none of these fields.
struct ThreadPool::State {
  explicit State(const ThreadPoolOptions& given) : options(given) {}

  const ThreadPoolOptions options;
  std::mutex callers;

  Task task = nullptr;
  void* context = nullptr;
  int n_tasks = 0;
  alignas(64) std::atomic<int> unclaimed{0};
  alignas(64) std::atomic<int> unfinished{0};
  alignas(64) std::atomic<std::uint32_t> job{0};  // changes when there is a job
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;

  // Runs tasks until none is left, and returns their number.
  int work(int thread) noexcept {
    int left = unclaimed.load(std::memory_order_acquire);
    int done = 0;
    while (left > 0) {
      if (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      task(context, n_tasks - left, thread);
      ++done;
      left = unclaimed.load(std::memory_order_acquire);
    }
    return done;
  }

  void finish(int done) noexcept {
    if (done > 0 && unfinished.fetch_sub(done, std::memory_order_acq_rel) == done) unfinished.notify_one();
  }

  void serve(int thread) noexcept {
    std::uint32_t seen = 0;
    while (true) {
      await_change(job, seen, options.spin_us);
      seen = job.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      // Every job sets the mode: code of another library may have changed it.
      const ComputeFloatMode mode;
      finish(work(thread));
    }
  }

  void stop() noexcept {
    stopping.store(true, std::memory_order_release);
    job.fetch_add(1, std::memory_order_acq_rel);
    job.notify_all();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }

  void start() {
    require_cpus(options);
    stopping.store(false, std::memory_order_release);
    try {
      for (int thread = 1; thread < options.n_threads; ++thread) start_worker(thread);
    } catch (const std::system_error& error) {
      const std::size_t started = workers.size();
      stop();
      throw ResourceExhausted(
          Reason::NO_MEMORY,
          "threads: " + std::to_string(options.n_threads) + " needed, the system refused after " +
              std::to_string(started + 1) + ": " + error.what(),
          {{"needed", std::to_string(options.n_threads)}, {"available", std::to_string(started + 1)}});
    }
  }

  void start_worker(int thread) {
    // The worker pins itself before its first wait. start() has checked that the CPU is allowed.
    const int cpu = options.cpus.empty() ? -1 : options.cpus[static_cast<std::size_t>(thread)];
    workers.emplace_back([this, thread, cpu] {
      if (cpu >= 0) pin_this_thread(cpu);
      serve(thread);
    });
  }
};

void pin_this_thread(int cpu) {
#if defined(__linux__)
  if (cpu < 0 || cpu >= CPU_SETSIZE) refuse_cpu(cpu, "is not a CPU");
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<std::size_t>(cpu), &only);
  if (sched_setaffinity(0, sizeof only, &only) != 0) refuse_cpu(cpu, std::strerror(errno));
#else
  refuse_cpu(cpu, "cannot be pinned to on this system");
#endif
}

ThreadPool::ThreadPool(const ThreadPoolOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.n_threads < 1 || options.n_threads > kMaxThreads) {
    throw FieldInvalid("n_threads",
                       std::to_string(options.n_threads) + ", expected 1 to " + std::to_string(kMaxThreads));
  }
  state_ = std::make_unique<State>(options);
  state_->start();
}

ThreadPool::~ThreadPool() {
  state_->stop();
}

int ThreadPool::n_threads() const noexcept {
  return state_->options.n_threads;
}

void ThreadPool::rest() noexcept {
  const std::lock_guard lock(state_->callers);
  state_->stop();
}

void ThreadPool::begin() {
  const std::lock_guard lock(state_->callers);
  if (state_->workers.empty()) state_->start();
}

void ThreadPool::run_erased(int n_tasks, Task task, void* context) {
  if (n_tasks <= 0) return;
  State& state = *state_;
  const std::lock_guard lock(state.callers);
  const ComputeFloatMode mode;
  if (n_tasks == 1 || state.workers.empty()) {
    for (int i = 0; i < n_tasks; ++i) task(context, i, 0);
    return;
  }
  state.task = task;
  state.context = context;
  state.n_tasks = n_tasks;
  state.unfinished.store(n_tasks, std::memory_order_relaxed);
  state.unclaimed.store(n_tasks, std::memory_order_release);
  state.job.fetch_add(1, std::memory_order_release);
  state.job.notify_all();
  state.finish(state.work(0));
  for (int left = state.unfinished.load(std::memory_order_acquire); left != 0;
       left = state.unfinished.load(std::memory_order_acquire)) {
    await_change(state.unfinished, left, state.options.spin_us);
  }
}

}  // namespace imp
