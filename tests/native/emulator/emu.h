// Runs the body of a kernel on the CPU: each thread of a block is a fiber, the blocks of a grid run one after another.
//
// Knows threadIdx and its like, static and dynamic shared memory, barriers, shuffles and votes of whole warps, copies
// that are waited for, atomics on integers, and through arch.cuh the matrix instructions. The order in which fibers run
// is permuted by a seed, so that a missing barrier shows as a wrong result under some seed. Dynamic shared memory is
// poisoned before every block; a barrier that some thread does not reach ends the process with a message, as a device
// would hang. Says nothing of memory ordering, launch limits and speed. Static shared memory holds what the block
// before left there.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __restrict__

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz) {}
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace imp::cuda::emu {

// Where threads stand in the grid that runs. One grid runs at a time in the process: run_grid() sees to it.
struct Place {
  dim3 thread, block, block_dim, grid_dim;
  unsigned linear = 0;  // number of the thread in its block
};
extern Place place;

void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, unsigned thread_order,
              const std::function<void()>& body);

unsigned char* dynamic_shared() noexcept;
std::size_t dynamic_shared_bytes() noexcept;

inline unsigned lane() noexcept {
  return place.linear % 32;
}

// Groups of threads that meet: the block, or those of its `n` consecutive threads that the caller is among (a warp, a
// warpgroup). A group is whole: a thread of it that has ended is missed.
void meet_block();
void meet_group(unsigned n);
// 64 bytes for each thread of the block, to show to others between two meetings.
inline constexpr std::size_t kSlotBytes = 64;
unsigned char* slot_of(unsigned linear_thread) noexcept;

// Lets other threads run: a thread that waits for memory to change calls it in its loop. Ends the process where all of
// them only wait.
void give_way();
// The caller has changed what another may wait for.
void note_progress() noexcept;

[[noreturn]] void fail(const char* message);

// Every lane offers a value; `read` gets a function from lane to value.
template <class T, class Read>
void exchange(const T& value, const Read& read) {
  static_assert(sizeof(T) <= kSlotBytes);
  const unsigned first = place.linear / 32 * 32;
  std::memcpy(slot_of(place.linear), &value, sizeof value);
  meet_group(32);
  read([first](unsigned source) {
    T other;
    std::memcpy(&other, slot_of(first + source % 32), sizeof other);
    return other;
  });
  meet_group(32);
}

inline void require_full_mask(unsigned mask) {
  if (mask != ~0U) fail("only full masks are emulated");
}

template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  require_full_mask(mask);
  exchange(value, [&](auto from) { value = from(source); });
  return value;
}

// Work that the device does beside its threads, some time after it was begun: at once, or only when all threads wait
// for something, as the seed of their order has it (odd, even).
void begin_beside(std::function<void()> work);

// Products of warpgroups run beside their threads: each thread's part is done when it waits for it, and not before.
void begin_product(std::function<void()> part);
void end_product_group();
void wait_for_products(unsigned n_groups_under_way);

// Copies to shared memory that run beside their thread: nothing arrives before it is waited for.
void begin_copy(void* to, const void* from, std::size_t n_bytes, std::size_t n_zero_bytes);
void end_copy_group();
void wait_for_copies(unsigned n_groups_under_way);

}  // namespace imp::cuda::emu

#define threadIdx (imp::cuda::emu::place.thread)
#define blockIdx (imp::cuda::emu::place.block)
#define blockDim (imp::cuda::emu::place.block_dim)
#define gridDim (imp::cuda::emu::place.grid_dim)

inline void __syncthreads() {
  imp::cuda::emu::meet_block();
}
inline void __syncwarp(unsigned mask = ~0U) {
  imp::cuda::emu::require_full_mask(mask);
  imp::cuda::emu::meet_group(32);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return imp::cuda::emu::shuffle(mask, value, static_cast<unsigned>(source));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return imp::cuda::emu::shuffle(mask, value, imp::cuda::emu::lane() ^ static_cast<unsigned>(bits));
}
// Beyond the warp's ends a lane keeps its own value.
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
  const unsigned lane = imp::cuda::emu::lane();
  return imp::cuda::emu::shuffle(mask, value, lane < delta ? lane : lane - delta);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta) {
  const unsigned lane = imp::cuda::emu::lane();
  return imp::cuda::emu::shuffle(mask, value, lane + delta > 31 ? lane : lane + delta);
}
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  imp::cuda::emu::require_full_mask(mask);
  unsigned all = 0;
  imp::cuda::emu::exchange(vote, [&](auto from) {
    for (unsigned lane = 0; lane < 32; ++lane) all |= static_cast<unsigned>(from(lane)) << lane;
  });
  return all;
}
inline bool __any_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) != 0;
}
inline bool __all_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) == ~0U;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
  return c;
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(Wide{a} * b >> 64);
}
template <class To, class From>
To imp_bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline int __float_as_int(float x) {
  return imp_bits_of<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return imp_bits_of<unsigned>(x);
}
inline float __int_as_float(int x) {
  return imp_bits_of<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return imp_bits_of<float>(x);
}
inline long long __double_as_longlong(double x) {
  return imp_bits_of<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return imp_bits_of<double>(x);
}
template <class T>
T atomicAdd(T* at, T value) {
  static_assert(static_cast<T>(0.5) == T{}, "sums of floats depend on their order");
  const T before = *at;
  *at += value;
  return before;
}
template <class T>
T atomicMax(T* at, T value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}
template <class T>
T atomicMin(T* at, T value) {
  const T before = *at;
  if (value < before) *at = value;
  return before;
}
template <class T>
T atomicOr(T* at, T value) {
  const T before = *at;
  *at |= value;
  return before;
}
template <class T>
T __ldg(const T* at) {
  return *at;
}
