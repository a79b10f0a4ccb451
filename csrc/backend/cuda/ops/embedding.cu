// Decodes rows of a table.
#include "backend/batch.h"
#include "backend/cuda/device/arch.cuh"
#include "backend/cuda/device/launch.cuh"
#include "backend/cuda/device/warp.cuh"
#include "backend/cuda/gemm/encoded_rows.cuh"
#include "backend/cuda/gemm/tile_rows.cuh"
#include "backend/cuda/ops/cuda_ops.h"
#include "backend/cuda/sampling/data.h"
#include "backend/gemm.h"
#include "backend/rows.h"
#include "base/ceil_div.h"
#include "base/error.h"
#include "tensor/quant/with_block.h"

namespace imp::cuda {

struct Embedding {
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * kWarpSize;
};

// A failed draw may be any token: its row is dropped.
__device__ __forceinline__ std::int32_t token_at(std::int32_t token, const DeviceResult* results) {
  if (!is_drawn(token)) return token;
  const std::int32_t drawn = results[request_of(token)].token;
  return drawn < 0 ? 0 : drawn;
}

template <class Block>
__device__ __forceinline__ void put_group(const std::byte* row, int group, float scale, float* out) {
  decode_group<Block>(row, group, out);
  for (int i = 0; i < kGroupElements<Block>; ++i) out[i] *= scale;
}

// One thread block per token. The table is in the file's layout.
template <class Block>
__global__ void __launch_bounds__(Embedding::kThreads)
    embed_rows_kernel(const std::int32_t* tokens, const DeviceResult* results, const std::byte* table, int k,
                      float scale, Rows out) {
  constexpr int kElements = kGroupElements<Block>;
  const std::size_t row_bytes = static_cast<std::size_t>(k / Block::kElements) * sizeof(Block);
  const std::byte* const row = table + static_cast<std::size_t>(token_at(tokens[blockIdx.x], results)) * row_bytes;
  float* const to = out.data + blockIdx.x * out.stride;
  for (int group = static_cast<int>(threadIdx.x); group < k / kElements; group += Embedding::kThreads) {
    put_group<Block>(row, group, scale, to + group * kElements);
  }
}

// The same for a table in tiles. A warp decodes one tile at a time.
template <class Block>
__global__ void __launch_bounds__(Embedding::kThreads)
    embed_tiles_kernel(const std::int32_t* tokens, const DeviceResult* results, const std::byte* table, int k,
                       float scale, Rows out) {
  constexpr int kElements = kGroupElements<Block>;
  constexpr int kPartBytes = kTileElements / Block::kElements * static_cast<int>(sizeof(Block));
  alignas(16) __shared__ std::byte parts[Embedding::kWarps][round_up(kPartBytes, 16)];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int n_tiles = static_cast<int>(tiles_along(k)), token = token_at(tokens[blockIdx.x], results);
  const std::byte* const strip =
      table + static_cast<std::size_t>(token / kTileRows) * static_cast<std::size_t>(n_tiles) * kTileRows * kPartBytes;
  float* const to = out.data + blockIdx.x * out.stride;
  for (int tile = warp; tile < n_tiles; tile += Embedding::kWarps) {
    for (int i = lane; i < kPartBytes; i += kWarpSize) {
      parts[warp][i] = TileRow<Block>::file_byte(strip + tile * kTileRows * kPartBytes, token % kTileRows, i);
    }
    __syncwarp();
    const int begin = tile * kTileElements, n_elements = k - begin < kTileElements ? k - begin : kTileElements;
    for (int group = lane; group < n_elements / kElements; group += kWarpSize) {
      put_group<Block>(parts[warp], group, scale, to + begin + group * kElements);
    }
    __syncwarp();
  }
}

void embed(Stream& stream, const std::int32_t* tokens, const DeviceResult* results, int n, const std::byte* table,
           DType type, WeightLayout layout, std::int64_t k, float scale, Rows out) {
  const LaunchShape shape = {.grid = static_cast<unsigned>(n), .block = Embedding::kThreads};
  quant::with_block(type, [&]<class Block>() {
    if (layout == WeightLayout::file) {
      return launch(stream, embed_rows_kernel<Block>, shape, tokens, results, table, k, scale, out);
    }
    IMP_CHECK(layout == WeightLayout::tile16 && TileRow<Block>::kExists);
    if constexpr (TileRow<Block>::kExists) {
      launch(stream, embed_tiles_kernel<Block>, shape, tokens, results, table, k, scale, out);
    }
  });
}

}  // namespace imp::cuda
