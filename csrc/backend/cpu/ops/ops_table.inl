// All ops' inner loops, compiled by the including file, and their table.
#pragma once

#include "backend/cpu/attention/attention.inl"
#include "backend/cpu/kv/kv_append.inl"
#include "backend/cpu/ops/cpu_ops.h"
#include "backend/cpu/ops/elementwise.inl"
#include "backend/cpu/ops/experts.inl"
#include "backend/cpu/ops/norm.inl"
#include "backend/cpu/ops/recurrence.inl"
#include "backend/cpu/ops/rope.inl"
#include "backend/cpu/sampling/sampling.inl"

namespace imp::cpu {
namespace {

template <class Storage>
constexpr KvOps kv_ops() {
  return {.append = append<Storage>, .attend_split = attend_split<Storage>, .score_split = score_split<Storage>};
}

constexpr CpuOps kTable = {
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .rope_angles = rope_angles,
    .rope_adjacent = rope_adjacent,
    .rope_halves = rope_halves,
    .silu = silu,
    .gelu_tanh = gelu_tanh,
    .clamped_silu = clamped_silu,
    .add = add,
    .add_gated = add_gated,
    .scale = scale,
    .plain_gelu_tanh = plain_gelu_tanh,
    .relu_squared = relu_squared,
    .xielu = xielu,
    .soft_cap = soft_cap,
    .softmax = softmax,
    .multiply_sigmoid = multiply_sigmoid,
    .short_conv = short_conv,
    .scale_to_length = scale_to_length,
    .delta_gates = delta_gates,
    .delta_rule = delta_rule,
    .mix = mix,
    .kv = {kv_ops<F32Storage>(),
           kv_ops<F16Storage>(),
           kv_ops<BF16Storage>(),
           {.append = append_quantized,
            .attend_split = attend_split<Q8Storage>,
            .score_split = score_split<Q8Storage>}},
    .merge = merge,
    .finish = finish,
    .sampling =
        {.scan = scan, .gather = gather, .weigh = weigh, .block_masses = block_masses, .surprisals = surprisals},
};

}  // namespace
}  // namespace imp::cpu
