// The product of product.inl on matrix registers (tiles): 16 rows of activations times a panel at a time. A tile's
// integers are exact and the floats are added in product.inl's order, so the bits are equal.
//
// `Tiles` is the set of registers. The tests have a portable one.
//
//   Tiles(config)            sets the sizes of the tiles and clears them; the destructor gives them back
//   clear<t>()               zero
//   load<t>(from, stride)    tile t's rows, each `stride` bytes after the one before
//   store<t>(to, stride)     the same to memory
//   add_products<s, a, b>()  s[m][n] += the sum over k of a[m][k] · b[k / 4][n][k % 4]; s is int32, a and b are int8
#include "backend/cpu/gemm/quantized/product.inl"
#include "backend/cpu/gemm/quantized/tile_config.h"

namespace imp::cpu {
namespace {

constexpr int kTileHeight = 16;

// The number of row tiles that share the unpacked codes of a group. Both these codes and the tiles' sums fit the L1
// cache.
constexpr int kTilesAtOnce = 4;

constexpr int kProducts = 0, kActivations = 1, kWeights = 2;

// The codes of a group minus their zero point, as tiles take weights. The subtraction wraps to int8's bits.
using CodeBytes = std::uint8_t __attribute__((vector_size(64)));

template <class Weights, int group>
[[gnu::always_inline]] inline void unpack(const typename Weights::Block& block, CodeBytes (&codes)[8]) {
  constexpr CodeRange range = Weights::kRange;
  static_assert(range.most - range.zero_point <= 127);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const Operand<range> operand(Weights::template codes<group>(block, j));
    static_assert(sizeof operand.codes == sizeof codes[j]);
    __builtin_memcpy(&codes[j], &operand.codes, sizeof codes[j]);
    codes[j] -= static_cast<std::uint8_t>(range.zero_point);
  }
}

// Tiles of equal height times a panel.
struct Strip {
  int n_tiles;
  int height;
  const std::byte* rows[kTilesAtOnce];  // the next block of each tile's first row
  std::ptrdiff_t stride;
  alignas(64) float sums[kTilesAtOnce][kTileHeight][kLanes];
};

// All groups of a block from `group` on.
template <class Weights, int group, class Tiles>
[[gnu::always_inline]] inline void multiply_strip_block(Tiles& tiles, const typename Weights::Block& block,
                                                        Strip& strip)
  requires(Weights::kScalePer == ScalePer::group)
{
  CodeBytes codes[8];
  unpack<Weights, group>(block, codes);
  tiles.template load<kWeights>(codes, sizeof codes[0]);
  const Lanes scale = Weights::template scale<group>(block);
  [[maybe_unused]] Lanes min;
  if constexpr (Weights::kHasMin) min = Weights::template min<group>(block);
  const int height = strip.height;
  const std::ptrdiff_t stride = strip.stride;
  for (int i = 0; i < strip.n_tiles; ++i) {
    alignas(64) std::int32_t products[kTileHeight][kLanes];
    tiles.template clear<kProducts>();
    tiles.template load<kActivations>(strip.rows[i], stride);
    tiles.template add_products<kProducts, kActivations, kWeights>();
    tiles.template store<kProducts>(products, sizeof products[0]);
    const std::byte* row = strip.rows[i];
    for (int t = 0; t < height; ++t, row += stride) {
      const auto& x = *reinterpret_cast<const ActivationBlock*>(row);
      float* const to = strip.sums[i][t];
      Lanes sum = fma(from_int(load_int(products[t])), scale * broadcast(x.scale), load(to));
      if constexpr (Weights::kHasMin) sum = fma(min, broadcast(x.scaled_sum), sum);
      store(to, sum);
    }
    strip.rows[i] += sizeof(ActivationBlock);
  }
  if constexpr (group + 1 < Weights::kGroups) multiply_strip_block<Weights, group + 1>(tiles, block, strip);
}

// Rows [begin, end) times the panel of column n. The last tile is as high as the others and may repeat some rows.
template <class Weights, class Tiles>
void multiply_strip(const GemmArgs& args, Tiles& tiles, int height, std::int64_t n, int begin, int end) {
  using Block = typename Weights::Block;
  Strip strip;
  strip.n_tiles = ceil_div(end - begin, height);
  strip.height = height;
  strip.stride = args.activation_stride;
  const auto first_row = [&](int i) {
    return begin + (i + 1) * height < args.m ? begin + i * height : args.m - height;
  };
  for (int i = 0; i < strip.n_tiles; ++i) {
    strip.rows[i] = args.activations + first_row(i) * args.activation_stride;
    for (int t = 0; t < height; ++t) store(strip.sums[i][t], zero());
  }
  const std::int64_t n_blocks = args.k / (32 * Weights::kGroups);
  const auto* const panel = reinterpret_cast<const Block*>(args.weight) + n / kLanes * n_blocks;
  for (std::int64_t b = 0; b < n_blocks; ++b) multiply_strip_block<Weights, 0>(tiles, panel[b], strip);
  const int columns = static_cast<int>(args.n_end - n < kLanes ? args.n_end - n : kLanes);
  for (int i = 0; i < strip.n_tiles; ++i) {
    float* const out = args.out + first_row(i) * args.out_stride + (n - args.n_begin);
    for (int t = 0; t < height; ++t) store_up_to(out + t * args.out_stride, load(strip.sums[i][t]), columns);
  }
}

// The tiles are configured once a call: a call is a task of a thread, or a large part of one.
template <class Weights, class Tiles>
void multiply_in_tiles(const GemmArgs& args) {
  const int height = ceil_div(args.m, ceil_div(args.m, kTileHeight));
  TileConfig config;
  const auto resize = [&](int tile, int rows, int row_bytes) {
    config.rows[tile] = static_cast<std::uint8_t>(rows);
    config.row_bytes[tile] = static_cast<std::uint16_t>(row_bytes);
  };
  resize(kProducts, height, sizeof(std::int32_t) * kLanes);
  resize(kActivations, height, sizeof ActivationBlock::codes);
  resize(kWeights, 8, sizeof(FourBytes));
  Tiles tiles(config);
  for_parts<Weights>(args, kTilesAtOnce * height, 1, [&](std::int64_t n, std::int64_t n_end, int row, int end) {
    for (; n < n_end; n += kLanes) {
      for (int begin = row; begin < end; begin += kTilesAtOnce * height) {
        const int left = end - begin;
        multiply_strip<Weights>(args, tiles, height, n, begin,
                                begin + (left < kTilesAtOnce * height ? left : kTilesAtOnce * height));
      }
    }
  });
}

}  // namespace
}  // namespace imp::cpu
