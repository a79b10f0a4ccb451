// Selects the function for a format and an instruction set.
#include "backend/cpu/gemm/activations.h"

#include "backend/cpu/gemm/quantized/activation_block.h"

namespace imp::cpu {

namespace {

RowPreparers preparers([[maybe_unused]] const DeviceCaps& caps) noexcept {
#if IMP_X86
  if (caps.cpu.includes(needs::avx512)) return row_preparers_avx512();
  if (caps.cpu.includes(needs::avx2)) return row_preparers_avx2();
#endif
  return row_preparers_generic();
}

}  // namespace

PrepareRow preparer_for(ActivationFormat format, const DeviceCaps& caps) noexcept {
  if (format == ActivationFormat::q8_block32) return preparers(caps).quantize;
  if (format == ActivationFormat::bf16) return preparers(caps).round;
  return nullptr;
}

std::ptrdiff_t prepared_bytes(ActivationFormat format, std::int64_t k) noexcept {
  if (format == ActivationFormat::q8_block32) {
    return static_cast<std::ptrdiff_t>(k / 32 * static_cast<std::int64_t>(sizeof(ActivationBlock)));
  }
  if (format == ActivationFormat::bf16) return static_cast<std::ptrdiff_t>((k + 1) / 2 * 4);
  return 0;
}

std::ptrdiff_t activation_bytes(ActivationFormat format, std::int64_t k) noexcept {
  if (format == ActivationFormat::f32)
    return static_cast<std::ptrdiff_t>(k) * static_cast<std::ptrdiff_t>(sizeof(float));
  return prepared_bytes(format, k);
}

}  // namespace imp::cpu
