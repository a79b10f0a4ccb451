// What hopper.cuh's instructions do to memory on the emulated device: barriers that count bytes, copies of tiles.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cuda::emu {

// A matrix of 16-bit elements, and the boxes that are copied out of it.
struct TensorMap {
  const std::byte* data = nullptr;
  std::int64_t n_elements = 0;  // of a row
  std::int64_t n_rows = 0;
  std::int64_t row_bytes = 0;  // from one row to the next
  int box_elements = 0;
  int box_rows = 0;
  // Mistakes that tests ask for: products must then be wrong.
  bool is_plain = false;  // boxes arrive without their permutation
  bool is_late = false;   // each is the box before it
};
TensorMap make_tensor_map(const void* data, std::int64_t n_elements, std::int64_t n_rows, std::int64_t row_bytes,
                          int box_elements, int box_rows);

// A barrier is 8 bytes of shared memory, whose phases begin with 0. A phase is over when all have arrived and all bytes
// that arrivals announced have come.
void init_barrier(std::uint64_t* barrier, unsigned n_arrivals);
void arrive(std::uint64_t* barrier, unsigned n_expected_bytes);
void wait(std::uint64_t* barrier, unsigned phase_parity);

// Bytes from the beginning of the block's dynamic shared memory, which is an address's place in it.
std::uint32_t shared_offset(const void* shared);

// The box that begins at (element, row), with zeros beyond the matrix, permuted as `swizzled` says; then the barrier
// counts the box's bytes.
void begin_tile_copy(void* to, const TensorMap& map, int element, int row, std::uint64_t* barrier);

}  // namespace imp::cuda::emu
