// A fixed team of threads that runs one loop at a time, the caller among them.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace imp {

struct ThreadPoolOptions {
  int n_threads = 1;           // the caller included
  std::vector<int> cpus;       // CPU of each thread; empty: threads are left to the kernel
  std::int64_t spin_us = 100;  // how long an idle thread spins before it parks
};

// run() may be called from any thread; calls are taken one at a time, and a body must not call run() itself. While it
// runs, every thread of the team (the caller too) rounds to nearest, flushes denormal results to zero and reads
// denormal inputs as zero, so that all instruction sets compute the same bits; the caller's mode is restored
// afterwards. A parked team uses no CPU.
class ThreadPool {
 public:
  // Throws InvalidArgument for a count or a CPU that cannot be, ResourceExhausted where a thread is refused. Thread 0
  // is the caller: the pool never moves it, so whoever owns that thread pins it with pin_this_thread(cpus[0]).
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const noexcept;

  // Calls body(task, thread) once for each task in [0, n_tasks); tasks are handed out one by one, so that a slow
  // core delays no other, and a thread that wakes too late to get one is not waited for. thread is in [0, n_threads)
  // and names scratch; the caller is thread 0. Nothing is allocated. body must not throw.
  template <class Body>
  void run(int n_tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased(
        n_tasks, [](void* context, int task, int thread) { (*static_cast<Plain*>(context))(task, thread); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Task = void (*)(void* context, int task, int thread);
  void run_erased(int n_tasks, Task task, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

// Keeps the calling thread on one CPU. Throws InvalidArgument where the process may not run there.
void pin_this_thread(int cpu);

}  // namespace imp
