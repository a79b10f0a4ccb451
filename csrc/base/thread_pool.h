// A thread pool of fixed size that runs one parallel loop at a time. The caller takes part.
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

// Any thread may call run(); calls run one after the other, and a body must not call run(). During it every thread, the
// caller too, rounds to nearest, flushes denormal results to zero and reads denormal inputs as zero, so that all
// instruction sets compute the same bits. The caller's mode is restored afterwards. A parked pool uses no CPU.
class ThreadPool {
 public:
  // Throws InvalidArgument for an impossible count or CPU, ResourceExhausted if the system refuses a thread. Thread 0
  // is the caller. The pool never pins it; its owner does so with pin_this_thread(cpus[0]).
  explicit ThreadPool(const ThreadPoolOptions& options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const noexcept;

  // Ends the threads, so that the process can fork. Until begin(), run() has the caller only, and numbers are the same.
  void rest() noexcept;
  // Starts the threads again, unless they run. Throws as the constructor does.
  void begin();

  // Calls body(task, thread) once for each task in [0, n_tasks). Threads claim tasks one by one, so that a slow core
  // delays no other, and no thread waits for a late one. thread is in [0, n_threads) and selects scratch; the caller is
  // thread 0. Allocates nothing. body must not throw.
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

// Pins the calling thread to one CPU. Throws InvalidArgument if the process may not use that CPU.
void pin_this_thread(int cpu);

}  // namespace imp
