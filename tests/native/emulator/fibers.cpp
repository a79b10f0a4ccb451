// Allocates stacks with mmap. A switch saves the registers that the calling convention requires.
#include "native/emulator/fibers.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// swapcontext() makes a system call for the signal mask each time, which is most of its cost. But the thread sanitizer
// supports only swapcontext().
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define IMP_OWN_SWITCH 1
#else
#define IMP_OWN_SWITCH 0
#endif

namespace imp::cuda::emu {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

std::byte* make_stack() {
  void* const memory =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

// Shifts the stacks, which otherwise would all use the same lines of a cache.
std::byte* stack_suffix(std::byte* stack) {
  constexpr std::size_t kColours = 64, kApart = 1088;
  return stack + kStackBytes - reinterpret_cast<std::uintptr_t>(stack) / kStackBytes % kColours * kApart;
}

}  // namespace

struct Fiber::Context {
  std::byte* stack = nullptr;  // null: the fiber is the thread itself
#if IMP_OWN_SWITCH
  void* stack_pointer = nullptr;
#else
  ucontext_t place{};
#endif
#if defined(__SANITIZE_ADDRESS__)
  void (*entry)() = nullptr;
  Context* came_from = nullptr;  // the fiber that last switched to it
  const void* begin = nullptr;   // begin of its stack
  std::size_t n_bytes = 0;
  void* fake_stack = nullptr;
#endif
};

namespace {

#if defined(__SANITIZE_ADDRESS__)

// Reports each switch to the address sanitizer, which returns the thread's own stack at the first switch.
Fiber::Context* entered = nullptr;

void leave(Fiber::Context& from, Fiber::Context& to) {
  to.came_from = &from;
  entered = &to;
  __sanitizer_start_switch_fiber(&from.fake_stack, to.begin, to.n_bytes);
}

void arrive(Fiber::Context& self) {
  __sanitizer_finish_switch_fiber(self.fake_stack, &self.came_from->begin, &self.came_from->n_bytes);
}

void enter() {
  Fiber::Context& self = *entered;
  arrive(self);
  self.entry();
}

// The previous run left frames without returning from them. Returns the function to call instead of the entry.
auto prepare(Fiber::Context& self, void (*entry)()) {
#if IMP_OWN_SWITCH
  const auto* const used = static_cast<const std::byte*>(self.stack_pointer);
  if (used != nullptr) ASAN_UNPOISON_MEMORY_REGION(used, self.stack + kStackBytes - used);
#else
  ASAN_UNPOISON_MEMORY_REGION(self.stack, kStackBytes);
#endif
  self.entry = entry;
  self.begin = self.stack;
  self.n_bytes = kStackBytes;
  self.fake_stack = nullptr;
  return enter;
}

#else

void leave(Fiber::Context&, Fiber::Context&) {}
void arrive(Fiber::Context&) {}
auto prepare(Fiber::Context&, void (*entry)()) {
  return entry;
}

#endif

}  // namespace

#if IMP_OWN_SWITCH

// (where to store the stack pointer, the stack pointer to continue with)
extern "C" void imp_switch_stack(void** from, void* to);
asm(R"(
.text
.type imp_switch_stack, @function
imp_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size imp_switch_stack, .-imp_switch_stack
)");

void Fiber::start(void (*entry)()) {
  if (context_->stack == nullptr) context_->stack = make_stack();
  // The stack looks as if entry() had been called and had switched away with six saved registers.
  void (*const first)() = prepare(*context_, entry);
  auto* top = reinterpret_cast<std::uint64_t*>(stack_suffix(context_->stack)) - 8;
  top[0] = top[1] = top[2] = top[3] = top[4] = top[5] = 0;
  top[6] = reinterpret_cast<std::uint64_t>(first);
  context_->stack_pointer = top;
}

void Fiber::switch_between(Fiber& from, Fiber& to) {
  leave(*from.context_, *to.context_);
  imp_switch_stack(&from.context_->stack_pointer, to.context_->stack_pointer);
  arrive(*from.context_);
}

#else

void Fiber::start(void (*entry)()) {
  if (context_->stack == nullptr) context_->stack = make_stack();
  getcontext(&context_->place);
  context_->place.uc_stack.ss_sp = context_->stack;
  context_->place.uc_stack.ss_size = kStackBytes;
  makecontext(&context_->place, prepare(*context_, entry), 0);
}

void Fiber::switch_between(Fiber& from, Fiber& to) {
  leave(*from.context_, *to.context_);
  swapcontext(&from.context_->place, &to.context_->place);
  arrive(*from.context_);
}

#endif

Fiber::Fiber() : context_(new Context) {}

Fiber::~Fiber() {
  if (context_->stack != nullptr) munmap(context_->stack, kStackBytes);
  delete context_;
}

}  // namespace imp::cuda::emu
