// Loops that measure the machine's limits, one set per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cpu {

struct ProbeLoops {
  // Reads n_bytes, a multiple of 256, in four streams. Returns a sum, so that the compiler keeps every read.
  std::uint64_t (*read)(const std::byte* bytes, std::size_t n_bytes);
  // Multiply-adds of each type in registers. They return a value that depends on all of them.
  float (*multiply_f32)(std::int64_t n_rounds);
  std::int32_t (*multiply_int8)(std::int64_t n_rounds);
  float (*multiply_bf16)(std::int64_t n_rounds);
  std::int64_t f32_ops;  // per round; a multiply and an add count as two
  std::int64_t int8_ops;
  std::int64_t bf16_ops;
};

ProbeLoops probe_loops_generic();
ProbeLoops probe_loops_avx2();
ProbeLoops probe_loops_avx2vnni();
ProbeLoops probe_loops_avx512();
ProbeLoops probe_loops_avx512vnni();
ProbeLoops probe_loops_avx512bf16();
ProbeLoops probe_loops_neondot();

}  // namespace imp::cpu
