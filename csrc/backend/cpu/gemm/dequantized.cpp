// The loop over rows and ranges of k. The caller supplies the arithmetic.
#include "backend/cpu/gemm/dequantized.h"

#include <algorithm>

#include "tensor/dtype.h"

namespace imp::cpu {

namespace {

constexpr std::int64_t kRows = 16;
// Elements of a row decoded at a time: whole blocks of every type that stay in the L1 cache once decoded.
constexpr std::int64_t kPiece = 256;

struct Scratch {
  float rows[kRows][kPiece];
  float panels[kMaxPanels][kPiece][kRows];
};

// Rows [row, row + 16) of the weight, elements [k, k + piece), as one panel. Rows from n on are zero.
void decode_panel(const GemmArgs& args, const DTypeTraits& type, const PanelOps& ops, std::int64_t row, std::int64_t k,
                  std::int64_t piece, Scratch& scratch, float* panel) {
  const std::int64_t row_size = args.k / type.block_elements * type.block_bytes;
  const std::int64_t offset = k / type.block_elements * type.block_bytes;
  for (std::int64_t r = 0; r < kRows; ++r) {
    if (row + r < args.n) {
      type.dequantize(args.weight + (row + r) * row_size + offset, scratch.rows[r], piece / type.block_elements);
    } else {
      std::fill_n(scratch.rows[r], piece, 0.0F);
    }
  }
  ops.interleave(scratch.rows[0], kPiece, piece, panel);
}

}  // namespace

std::size_t dequantized_scratch_bytes() noexcept {
  return sizeof(Scratch);
}

void multiply_dequantized(const GemmArgs& args, const PanelOps& ops) {
  const DTypeTraits& type = traits(args.weight_type);
  Scratch& scratch = *reinterpret_cast<Scratch*>(args.scratch);
  float* const panels = scratch.panels[0][0];
  for (std::int64_t n = args.n_begin; n < args.n_end; n += kRows * ops.n_panels) {
    const auto columns = static_cast<int>(std::min(args.n_end - n, kRows * ops.n_panels));
    for (std::int64_t k = 0; k < args.k; k += kPiece) {
      const std::int64_t piece = std::min(kPiece, args.k - k);
      for (std::int64_t column = 0; column < columns; column += kRows) {
        decode_panel(args, type, ops, n + column, k, piece, scratch, panels + column * piece);
      }
      ops.multiply({panels, piece, args.activations + k * static_cast<std::int64_t>(sizeof(float)),
                    args.activation_stride, args.out + (n - args.n_begin), args.out_stride, args.m, columns, k > 0});
    }
  }
}

}  // namespace imp::cpu
