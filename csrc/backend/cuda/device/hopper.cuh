// Instructions that only Hopper has, as PTX: mbarriers that count bytes, copies of tiles (TMA), and products of
// warpgroups (wgmma). Only gemm/wgmma uses them.
#pragma once

#include <cuda.h>  // types only: the driver's function is looked up

#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/cuda_status.cuh"
#include "backend/cuda/device/stream.h"
#include "backend/cuda/device/warpgroup.h"

// Whether the target has all of this (sm_90a).
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define IMP_HOPPER 1
#endif

namespace imp::cuda::hopper {

using TensorMap = CUtensorMap;

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);
// The driver's function, looked up once; nullptr if the driver lacks it.
inline EncodeTiled tile_encoder() {
  static const EncodeTiled found = [] {
    constexpr unsigned kSince = 12000;
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    to_status(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, kSince, cudaEnableDefault, &result));
    return reinterpret_cast<EncodeTiled>(entry);
  }();
  return found;
}

// Describes copies of tiles of box_rows (at most 256) rows from a matrix of 16-bit elements, whose row_bytes and
// address are multiples of 16. The stream keeps errors.
inline TensorMap make_tensor_map(Stream& stream, const void* data, std::int64_t n_elements, std::int64_t n_rows,
                                 std::int64_t row_bytes, int box_rows) {
  TensorMap map{};
  const EncodeTiled encode = tile_encoder();
  if (encode == nullptr) {
    stream.keep({StatusKind::fault, static_cast<int>(cudaErrorSymbolNotFound), "no cuTensorMapEncodeTiled"});
    return map;
  }
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(n_elements), static_cast<cuuint64_t>(n_rows)};
  const cuuint64_t stride[1] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[2] = {kTileRowElements, static_cast<cuuint32_t>(box_rows)}, step[2] = {1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, const_cast<void*>(data), size, stride, box,
                                 step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) stream.keep({StatusKind::fault, static_cast<int>(result), "cuTensorMapEncodeTiled"});
  return map;
}

__device__ __forceinline__ std::uint32_t address_of(const void* shared) {
  return arch::shared_address(shared);
}

// Phases of a barrier begin with 0. A phase ends when n_arrivals have arrived and all bytes that they announced have
// been written.
__device__ __forceinline__ void init_barrier(std::uint64_t* barrier, unsigned n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(address_of(barrier)), "r"(n_arrivals) : "memory");
}
// Call after initializing barriers, before the block's threads synchronize to use them.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(address_of(barrier)) : "memory");
}
__device__ __forceinline__ void arrive_expecting(std::uint64_t* barrier, unsigned n_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(address_of(barrier)), "r"(n_bytes)
               : "memory");
}
// Waits for the end of the phase with this parity: the current phase or the one before.
__device__ __forceinline__ void wait(std::uint64_t* barrier, unsigned phase_parity) {
  std::uint32_t is_over = 0;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2; selp.u32 %0,1,0,p;}"
                 : "=r"(is_over)
                 : "r"(address_of(barrier)), "r"(phase_parity)
                 : "memory");
  } while (is_over == 0);
}

// Starts a copy of the matrix's tile at (element, row), zero beyond the matrix. Its bytes count on the barrier.
__device__ __forceinline__ void begin_tile_copy(void* shared, const TensorMap& map, int element, int row,
                                                std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3}],[%4];" ::"r"(
          address_of(shared)),
      "l"(&map), "r"(element), "r"(row), "r"(address_of(barrier))
      : "memory");
}

// A warpgroup releases registers to the block, or takes them (setmaxnreg), once, at the beginning of its role.
template <int kRegisters>
__device__ __forceinline__ void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Call before the first product, and before each product whose registers something else wrote.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void end_product_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most this many of the warpgroup's product groups are in flight.
template <int kUnderWay>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kUnderWay) : "memory");
}

#define IMP_D4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define IMP_D16(i) IMP_D4(i), IMP_D4((i) + 1), IMP_D4((i) + 2), IMP_D4((i) + 3)
#define IMP_MULTIPLY(types)                                                                               \
  asm volatile("{.reg .pred p; setp.eq.u32 p,0,0; wgmma.mma_async.sync.aligned.m64n128k16.f32." types     \
               " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
               "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45," \
               "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"                \
               "{%64,%65,%66,%67},%68,p,1,1,0;}"                                                          \
               : IMP_D16(0), IMP_D16(4), IMP_D16(8), IMP_D16(12)                                          \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tile))

// d[64x128] += a[64x16] · b[16x128] with float32 sums, asynchronously. Warp w has rows 16 · w and on, of a and of d, in
// the order of arch::mma_f16: d[j] is that shape's d of columns 8 · j and on. Columns of b are rows of a tile in shared
// memory. Do not touch d or a until wait_for_products() has returned.
__device__ __forceinline__ void multiply_f16(float (&d)[kProductGroups][4], const std::uint32_t (&a)[4],
                                             std::uint64_t tile) {
  IMP_MULTIPLY("f16.f16");
}
__device__ __forceinline__ void multiply_bf16(float (&d)[kProductGroups][4], const std::uint32_t (&a)[4],
                                              std::uint64_t tile) {
  IMP_MULTIPLY("bf16.bf16");
}

#undef IMP_MULTIPLY
#undef IMP_D16
#undef IMP_D4

}  // namespace imp::cuda::hopper
