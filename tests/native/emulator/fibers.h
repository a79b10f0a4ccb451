// Threads that give way to each other by themselves: what the threads of an emulated block are.
#pragma once

#include <cstddef>

namespace imp::cuda::emu {

// A stack of its own and the place where it stopped. Created once, started many times.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to it calls entry(), which must not return.
  void start(void (*entry)());
  // Leaves the caller's place in `from` and goes on in `to`.
  static void switch_between(Fiber& from, Fiber& to);

  struct Context;

 private:
  Context* context_;
};

}  // namespace imp::cuda::emu
