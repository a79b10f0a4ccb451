// New keys and values on their way into the cache: the device's side.
#pragma once

#include "backend/cuda/arch.cuh"
#include "backend/cuda/inputs.h"
#include "backend/cuda/kv_places.h"
#include "backend/cuda/kv_types.cuh"
#include "backend/cuda/warp.cuh"
#include "backend/rows.h"

namespace imp::cuda {

constexpr int kAppendThreads = 128;
constexpr int kAppendElements = 8;  // of a thread at a time

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

// Four lanes have a group of 32. No codes for a group of zeros, or of what has no finite scale, which is infinity or
// NaN then and says so itself.
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

// A block for each row of k and v [n, n_kv_heads · head_dim].
template <class Kv>
__global__ void __launch_bounds__(kAppendThreads)
    append_kernel(KvPlaces cache, SequencesOnDevice sequences, Rows k, Rows v) {
  const int row = static_cast<int>(blockIdx.x);
  const int sequence = sequences.sequence_of[row];
  const int position = sequences.first_positions[sequence] + row - sequences.first_rows[sequence];
  const std::int32_t block = sequences.blocks[sequences.first_blocks[sequence] + cache.block_of(position)];
  const int place = cache.place_of(position);
  const int n_of_row = cache.n_kv_heads * cache.head_dim / kAppendElements;
  for (int first = 0; first < 2 * n_of_row; first += kAppendThreads) {
    const int item = first + static_cast<int>(threadIdx.x);
    const bool exists = item < 2 * n_of_row;
    const int which = item < n_of_row ? 0 : 1;
    const int element = exists ? (item - which * n_of_row) * kAppendElements : 0;
    const int kv_head = element / cache.head_dim;
    const int d = element - kv_head * cache.head_dim;
    const float* const from = which == 0 ? k.data + row * k.stride : v.data + row * v.stride;
    const Elements8 elements = exists ? load_elements(from + element) : Elements8{};
    std::byte* const part = cache.part(block, kv_head, which);
    if constexpr (Kv::kQuantized) {
      std::byte* const scale = part + cache.first_scale() + place * cache.scale_bytes() + d / kKvGroup * 2;
      store_quantized(elements, exists, part + place * cache.head_dim + d, scale);
    } else {
      if (exists) store_rounded<Kv>(elements, part + (place * cache.head_dim + d) * 2);
    }
  }
}

}  // namespace imp::cuda
