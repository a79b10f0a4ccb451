// Runs the body of a kernel on the CPU: each thread of a block is a fiber, the blocks of a grid run one after another.
//
// Emulates threadIdx etc., static and dynamic shared memory, barriers, shuffles and votes of full warps, asynchronous
// copies, atomics on integers, and through arch.cuh the matrix instructions. A seed permutes the order of the fibers,
// so that a missing barrier gives a wrong result with some seed. Dynamic shared memory is poisoned before every block.
// A barrier that a thread does not reach, where a device would hang, ends the process with a message. Does not emulate
// memory ordering, launch limits and speed. Static shared memory keeps the content of the previous block.
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

// The indices of threads in the running grid. run_grid() runs one grid at a time in the process.
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

// Waits for a group of threads: the block, or the caller's group of `n` consecutive threads (a warp, a warpgroup). All
// threads of such a group must arrive; one that has ended is an error.
void meet_block();
void meet_group(unsigned n);
// 64 bytes for each thread of the block, to exchange data between two barriers.
inline constexpr std::size_t kSlotBytes = 64;
unsigned char* slot_of(unsigned linear_thread) noexcept;

// Lets other threads run. A thread that polls memory calls it in its loop. Ends the process if all threads only wait.
void give_way();
// Reports that the caller changed memory that another thread may poll.
void note_progress() noexcept;

[[noreturn]] void fail(const char* message);

// Every lane publishes a value; `read` gets a function from lane to value.
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

// Work that the device does asynchronously. The seed decides when: at once (odd), or when all threads wait (even).
void begin_beside(std::function<void()> work);

// Products of warpgroups are asynchronous: the part of a thread is computed when the thread waits for it.
void begin_product(std::function<void()> part);
void end_product_group();
void wait_for_products(unsigned n_groups_under_way);

// Asynchronous copies to shared memory: the data arrives only when the thread waits for it.
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
// If the source lane is outside of the warp, a lane keeps its value.
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
