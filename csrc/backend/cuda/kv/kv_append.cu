// Writes new keys and values to the cache.
#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/inputs.h"
#include "backend/cuda/kv/kv_append.h"
#include "backend/cuda/kv/kv_types.cuh"
#include "backend/cuda/ops/rotate_head.cuh"
#include "backend/rows.h"
#include "base/ceil_div.h"

namespace imp::cuda {

constexpr int kAppendThreads = 128;
constexpr int kAppendElements = 8;  // per thread at a time

struct Elements8 {
  float x[kAppendElements];
};

__device__ __forceinline__ Elements8 load_elements(const float* from) {
  Elements8 elements;
  IMP_UNROLL
  for (int i = 0; i < kAppendElements; i += 4) {
    const arch::Vec16 words = *reinterpret_cast<const arch::Vec16*>(from + i);
    IMP_UNROLL
    for (int j = 0; j < 4; ++j) elements.x[i + j] = __uint_as_float(words.word[j]);
  }
  return elements;
}

template <class Kv>
__device__ __forceinline__ void store_rounded(const Elements8& elements, void* to) {
  arch::Vec16 words;
  IMP_UNROLL
  for (int i = 0; i < kAppendElements / 2; ++i) {
    words.word[i] = Kv::pack(elements.x[2 * i], elements.x[2 * i + 1]);
  }
  *static_cast<arch::Vec16*>(to) = words;
}

// Four lanes have a group of 32. A group that is all zero, or whose scale is not finite, gets codes 0; the scale is
// then infinity or NaN and so marks the group.
__device__ __forceinline__ void store_quantized(const Elements8& elements, bool exists, void* to, void* scale_to) {
  int largest_bits = 0;
  IMP_UNROLL
  for (int i = 0; i < kAppendElements; ++i) {
    const int bits = __float_as_int(elements.x[i]) & 0x7FFFFFFF;
    largest_bits = bits > largest_bits ? bits : largest_bits;
  }
  IMP_UNROLL
  for (int lanes = 1; lanes < kKvGroup / kAppendElements; lanes *= 2) {
    const int other = __shfl_xor_sync(kAllLanes, largest_bits, lanes);
    largest_bits = other > largest_bits ? other : largest_bits;
  }
  if (!exists) return;
  const std::uint16_t scale = arch::float_to_f16(__int_as_float(largest_bits) / 127.0F);
  const float stored = arch::f16_to_float(scale);
  const bool has_codes = stored > 0 && (scale & 0x7C00) != 0x7C00;
  const float inverse = has_codes ? 1.0F / stored : 0.0F;
  std::uint32_t words[2] = {0, 0};
  IMP_UNROLL
  for (int i = 0; i < kAppendElements; ++i) {
    const float scaled = has_codes ? fminf(127.0F, fmaxf(-127.0F, elements.x[i] * inverse)) : 0.0F;
    words[i / 4] |= (static_cast<std::uint32_t>(static_cast<int>(rintf(scaled))) & 0xFF) << 8 * (i % 4);
  }
  static_cast<std::uint32_t*>(to)[0] = words[0];
  static_cast<std::uint32_t*>(to)[1] = words[1];
  if (threadIdx.x % (kKvGroup / kAppendElements) == 0) *static_cast<std::uint16_t*>(scale_to) = scale;
}

// The place in the cache of a row of the batch.
struct CacheSlot {
  std::int32_t block;
  int offset;  // in the block
};

__device__ __forceinline__ CacheSlot slot_of_row(const KvLayerView& cache, const SequencesOnDevice& sequences,
                                                 int row) {
  const int sequence = sequences.sequence_of[row];
  const int position = sequences.first_positions[sequence] + row - sequences.first_rows[sequence];
  return {sequences.blocks[sequences.first_blocks[sequence] + cache.block_of(position)],
          cache.offset_in_block(position)};
}

// A warp's work: one head of a row's K or V.
template <class Kv>
__device__ __forceinline__ void append_head(const KvLayerView& cache, const CacheSlot& slot, int kv_head, int which,
                                            const float* head) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  std::byte* const part = cache.part(slot.block, kv_head, which);
  for (int first = 0; first < cache.head_dim; first += kWarpSize * kAppendElements) {
    const int d = first + lane * kAppendElements;
    const bool exists = d < cache.head_dim;
    const Elements8 elements = exists ? load_elements(head + d) : Elements8{};
    if constexpr (Kv::kQuantized) {
      std::byte* const scale = part + cache.first_scale() + slot.offset * cache.scale_bytes() + d / kKvGroup * 2;
      store_quantized(elements, exists, part + slot.offset * cache.head_dim + d, scale);
    } else {
      if (exists) store_rounded<Kv>(elements, part + (slot.offset * cache.head_dim + d) * 2);
    }
  }
}

// One warp for each kv head of K and V of each row.
template <class Kv>
__global__ void __launch_bounds__(kAppendThreads)
    append_kernel(KvLayerView cache, SequencesOnDevice sequences, Rows k, Rows v) {
  const int number = static_cast<int>(blockIdx.x * (kAppendThreads / kWarpSize) + threadIdx.x / kWarpSize);
  const int row = number / (2 * cache.n_kv_heads);
  if (row >= k.n_rows) return;
  const int kv_head = number / 2 % cache.n_kv_heads, which = number % 2;
  const Rows& from = which == 0 ? k : v;
  append_head<Kv>(cache, slot_of_row(cache, sequences, row), kv_head, which,
                  from.data + row * from.stride + kv_head * cache.head_dim);
}

// One warp for each head of each row: rotates q, rotates and stores k, stores v.
template <class Kv>
__global__ void __launch_bounds__(kAppendThreads) rope_append_kernel(RopeAppendArgs args) {
  const int head_dim = args.cache.head_dim, n_kv_heads = args.cache.n_kv_heads;
  const int n_heads = args.q.width / head_dim;
  const int number = static_cast<int>(blockIdx.x * (kAppendThreads / kWarpSize) + threadIdx.x / kWarpSize);
  const int row = number / (n_heads + 2 * n_kv_heads);
  if (row >= args.q.n_rows) return;
  const int head = number % (n_heads + 2 * n_kv_heads);
  const float* const cosines = args.angles.data + row * args.angles.stride;
  if (head < n_heads) {
    rotate_head(args.q.data + row * args.q.stride + head * head_dim, args.rope, args.q_norm, cosines);
    return;
  }
  const bool is_key = head < n_heads + n_kv_heads;
  const int kv_head = is_key ? head - n_heads : head - n_heads - n_kv_heads;
  const Rows& from = is_key ? args.k : args.v;
  float* const values = from.data + row * from.stride + kv_head * head_dim;
  if (is_key) {
    rotate_head(values, args.rope, args.k_norm, cosines);
    __syncwarp();
  }
  append_head<Kv>(args.cache, slot_of_row(args.cache, args.sequences, row), kv_head, is_key ? 0 : 1, values);
}

namespace {

constexpr int kWarps = kAppendThreads / kWarpSize;

LaunchShape shape_for(int n_heads) {
  return {.grid = static_cast<unsigned>(ceil_div(n_heads, kWarps)), .block = kAppendThreads};
}

}  // namespace

void append_rows(Stream& stream, KvType type, const KvLayerView& cache, const SequencesOnDevice& sequences, Rows k,
                 Rows v) {
  const LaunchShape shape = shape_for(k.n_rows * 2 * cache.n_kv_heads);
  with_kv_type(type, [&]<class Kv>() { launch(stream, append_kernel<Kv>, shape, cache, sequences, k, v); });
}

void rope_append_rows(Stream& stream, KvType type, const RopeAppendArgs& args) {
  const int n_heads = args.q.width / args.cache.head_dim + 2 * args.cache.n_kv_heads;
  const LaunchShape shape = shape_for(args.q.n_rows * n_heads);
  with_kv_type(type, [&]<class Kv>() { launch(stream, rope_append_kernel<Kv>, shape, args); });
}

}  // namespace imp::cuda
