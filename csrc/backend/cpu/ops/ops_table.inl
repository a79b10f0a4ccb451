// All ops' inner loops, compiled by the including file, and their table.
#pragma once

#include "backend/cpu/attention/attention_merge.inl"
#include "backend/cpu/attention/attention_rounded.inl"
#include "backend/cpu/attention/attention_scores.inl"
#include "backend/cpu/attention/attention_softmax.inl"
#include "backend/cpu/attention/attention_values.inl"
#include "backend/cpu/kv/kv_append.inl"
#include "backend/cpu/kv/kv_codes.inl"
#include "backend/cpu/kv/kv_rotation.inl"
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
constexpr KeyOps key_ops() {
  if constexpr (Storage::kQuantized) {
    return {.append = append_key_codes<Storage>, .pack_queries = quantize_queries<Storage>, .score = score<Storage>};
  } else {
    return {.append = append_keys<Storage>, .pack_queries = pack_queries<Storage>, .score = score<Storage>};
  }
}

template <class Storage>
constexpr ValueOps value_ops() {
  if constexpr (!Storage::kQuantized) {
    return {.append = append_values<Storage>, .weigh = weigh<Storage>, .add = add_all_values<Storage>};
  } else if constexpr (Storage::kRoundsWeights) {
    return {.append = append_value_codes<Storage>, .weigh = weigh<Storage>, .add = add_rounded_values<Storage>};
  } else {
    return {.append = append_value_codes<Storage>, .weigh = weigh<Storage>, .add = add_all_values<Storage>};
  }
}

constexpr CpuOps kTable = {
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .rope_angles = rope_angles,
    .rope_planes = rope_planes,
    .rope_adjacent = rope_adjacent,
    .rope_halves = rope_halves,
    .silu = silu,
    .gelu_tanh = gelu_tanh,
    .gated_gelu_erf = gated_gelu_erf,
    .clamped_silu = clamped_silu,
    .add = add,
    .add_gated = add_gated,
    .scale = scale,
    .clamp = clamp,
    .standardize = standardize,
    .plain_gelu_tanh = plain_gelu_tanh,
    .gelu_erf = gelu_erf,
    .relu_squared = relu_squared,
    .xielu = xielu,
    .tanh = plain_tanh,
    .dot = dot,
    .soft_cap = soft_cap,
    .softmax = softmax,
    .multiply_sigmoid = multiply_sigmoid,
    .short_conv = short_conv,
    .scale_to_length = scale_to_length,
    .delta_gates = delta_gates,
    .delta_rule = delta_rule,
    .mix = mix,
    .keys = {key_ops<F32Storage>(), key_ops<F16Storage>(), key_ops<BF16Storage>(), key_ops<Q8Storage>(),
             key_ops<Rot8Storage>(), key_ops<LevelStorage<4>>(), key_ops<LevelStorage<3>>(),
             key_ops<LevelStorage<2>>()},
    .values = {value_ops<F32Storage>(), value_ops<F16Storage>(), value_ops<BF16Storage>(), value_ops<Q8Storage>(),
               value_ops<Rot8Storage>(), value_ops<LevelStorage<4>>(), value_ops<LevelStorage<3>>(),
               value_ops<LevelStorage<2>>()},
    .rotate_back = rotate_back,
    .merge = merge,
    .finish = finish,
    .sampling =
        {.scan = scan, .gather = gather, .weigh = weigh, .block_masses = block_masses, .surprisals = surprisals},
};

}  // namespace
}  // namespace imp::cpu
