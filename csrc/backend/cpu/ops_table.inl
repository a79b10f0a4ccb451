// All ops' inner loops, compiled by the including file, and their table.
#pragma once

#include "backend/cpu/attention.inl"
#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/elementwise.inl"
#include "backend/cpu/experts.inl"
#include "backend/cpu/kv_store.inl"
#include "backend/cpu/norm.inl"
#include "backend/cpu/rope.inl"
#include "backend/cpu/sampling.inl"

namespace imp::cpu {
namespace {

template <class Kept>
constexpr KvOps kv_ops() {
  return {.append = append<Kept>, .attend_split = attend_split<Kept>};
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
    .kv = {kv_ops<KeptF32>(),
           kv_ops<KeptF16>(),
           kv_ops<KeptBF16>(),
           {.append = append_quantized, .attend_split = attend_split<KeptQ8>}},
    .merge = merge,
    .finish = finish,
    .sampling = {.scan = scan, .gather = gather, .weigh = weigh, .block_masses = block_masses, .surprises = surprises},
};

}  // namespace
}  // namespace imp::cpu
