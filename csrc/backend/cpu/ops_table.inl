// All ops' inner loops, compiled by the including file, and their table.
#pragma once

#include "backend/cpu/attention.inl"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/elementwise.inl"
#include "backend/cpu/experts.inl"
#include "backend/cpu/kv_append.inl"
#include "backend/cpu/norm.inl"
#include "backend/cpu/rope.inl"
#include "backend/cpu/sampling.inl"

namespace imp::cpu {
namespace {

template <class KvStorage>
constexpr KvOps kv_ops() {
  return {.append = append<KvStorage>, .attend_split = attend_split<KvStorage>};
}

constexpr CpuOps kTable = {
    .rms_norm = rms_norm,
    .rope_angles = rope_angles,
    .rope_adjacent = rope_adjacent,
    .rope_halves = rope_halves,
    .silu = silu,
    .gelu_tanh = gelu_tanh,
    .add = add,
    .add_gated = add_gated,
    .scale = scale,
    .soft_cap = soft_cap,
    .softmax = softmax,
    .mix = mix,
    .kv = {kv_ops<KvStorageF32>(),
           kv_ops<KvStorageF16>(),
           kv_ops<KvStorageBF16>(),
           {.append = append_quantized, .attend_split = attend_split<KvStorageQ8>}},
    .merge = merge,
    .finish = finish,
    .sampling = {.scan = scan, .gather = gather, .weigh = weigh, .block_masses = block_masses, .surprises = surprises},
};

}  // namespace
}  // namespace imp::cpu
