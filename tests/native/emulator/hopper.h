// The memory operations of hopper.cuh on the emulated device: transaction barriers and copies of tiles.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cuda::emu {

// A matrix of 16-bit elements, and the size of the boxes that are copied from it.
struct TensorMap {
  const std::byte* data = nullptr;
  std::int64_t n_elements = 0;  // in a row
  std::int64_t n_rows = 0;
  std::int64_t row_bytes = 0;  // from one row to the next
  int box_elements = 0;
  int box_rows = 0;
  // Errors that tests inject; products must then be wrong.
  bool is_plain = false;  // boxes arrive without the permutation
  bool is_late = false;   // the box of the previous copy arrives
};
TensorMap make_tensor_map(const void* data, std::int64_t n_elements, std::int64_t n_rows, std::int64_t row_bytes,
                          int box_elements, int box_rows);

// A barrier is 8 bytes of shared memory; its phases count from 0. A phase ends when all threads and all announced bytes
// have arrived.
void init_barrier(std::uint64_t* barrier, unsigned n_arrivals);
void arrive(std::uint64_t* barrier, unsigned n_expected_bytes);
void wait(std::uint64_t* barrier, unsigned phase_parity);

// The offset of an address in the dynamic shared memory of the block.
std::uint32_t shared_offset(const void* shared);

// Copies the box at (element, row), permuted by `swizzled`, with zeros outside of the matrix. Then the barrier counts
// the bytes of the box.
void begin_tile_copy(void* to, const TensorMap& map, int element, int row, std::uint64_t* barrier);

}  // namespace imp::cuda::emu
