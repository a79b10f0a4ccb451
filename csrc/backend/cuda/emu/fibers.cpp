// Stacks by mmap; a switch saves what the calling convention asks a function to keep.
#include "backend/cuda/emu/fibers.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// swapcontext() asks the kernel for the signal mask each time, which is most of its cost. Sanitizers know only it.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
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

// Stacks begin at equal distances, and would all be used in the same lines of a cache.
std::byte* stack_end(std::byte* stack) {
  constexpr std::size_t kColours = 64, kApart = 1088;
  return stack + kStackBytes - reinterpret_cast<std::uintptr_t>(stack) / kStackBytes % kColours * kApart;
}

}  // namespace

struct Fiber::Context {
  std::byte* stack = nullptr;  // none: the fiber is the thread that switches to others
#if IMP_OWN_SWITCH
  void* stack_pointer = nullptr;
#else
  ucontext_t place{};
#endif
};

#if IMP_OWN_SWITCH

// (where to leave the stack pointer, the one to go on with)
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
  // As if entry() had been called with the stack aligned, and had switched away with six registers saved.
  auto* top = reinterpret_cast<std::uint64_t*>(stack_end(context_->stack)) - 8;
  top[0] = top[1] = top[2] = top[3] = top[4] = top[5] = 0;
  top[6] = reinterpret_cast<std::uint64_t>(entry);
  context_->stack_pointer = top;
}

void Fiber::switch_between(Fiber& from, Fiber& to) {
  imp_switch_stack(&from.context_->stack_pointer, to.context_->stack_pointer);
}

#else

void Fiber::start(void (*entry)()) {
  if (context_->stack == nullptr) context_->stack = make_stack();
  getcontext(&context_->place);
  context_->place.uc_stack.ss_sp = context_->stack;
  context_->place.uc_stack.ss_size = kStackBytes;
  makecontext(&context_->place, entry, 0);
}

void Fiber::switch_between(Fiber& from, Fiber& to) {
  swapcontext(&from.context_->place, &to.context_->place);
}

#endif

Fiber::Fiber() : context_(new Context) {}

Fiber::~Fiber() {
  if (context_->stack != nullptr) munmap(context_->stack, kStackBytes);
  delete context_;
}

}  // namespace imp::cuda::emu
