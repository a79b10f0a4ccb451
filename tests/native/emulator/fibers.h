// Fibers: the cooperative threads of an emulated block.
#pragma once

#include <cstddef>

namespace imp::cuda::emu {

// A stack and the position where the fiber stopped. Created once, started many times.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next switch to it call entry(), which must not return.
  void start(void (*entry)());
  // Stores the caller's state in `from` and continues in `to`.
  static void switch_between(Fiber& from, Fiber& to);

  struct Context;

 private:
  Context* context_;
};

}  // namespace imp::cuda::emu
