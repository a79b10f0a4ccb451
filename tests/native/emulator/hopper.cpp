// Transaction barriers, and copies of tiles.
#include "native/emulator/hopper.h"

#include <cstring>

#include "backend/cuda/device/tile_swizzle.h"
#include "native/emulator/emu.h"
#include "native/emulator/faults.h"

namespace imp::cuda::emu {
namespace {

struct Barrier {
  std::int32_t n_bytes;  // announced bytes that have not arrived
  std::uint16_t n_missing : 15, phase : 1;
  std::uint16_t n_arrivals;
};
static_assert(sizeof(Barrier) == sizeof(std::uint64_t));

template <class Change>
void change(std::uint64_t* memory, const Change& made) {
  Barrier barrier;
  std::memcpy(&barrier, memory, sizeof barrier);
  made(barrier);
  if (barrier.n_missing == 0 && barrier.n_bytes == 0) {
    barrier.phase ^= 1;
    barrier.n_missing = barrier.n_arrivals & 0x7fff;
  }
  std::memcpy(memory, &barrier, sizeof barrier);
  note_progress();
}

void copy_tile(std::byte* to, const TensorMap& map, int element, int row) {
  const std::uint32_t base = shared_offset(to);
  if (map.is_late) element -= map.box_elements;
  for (int r = 0; r < map.box_rows; ++r) {
    for (int e = 0; e < map.box_elements; ++e) {
      const bool exists = row + r < map.n_rows && element + e >= 0 && element + e < map.n_elements;
      const std::uint32_t place = base + static_cast<std::uint32_t>(r * kTileRowBytes + e * 2);
      std::byte* const at = to + ((map.is_plain ? place : swizzled(place)) - base);
      std::memset(at, 0, 2);
      if (exists) std::memcpy(at, map.data + (row + r) * map.row_bytes + (element + e) * std::int64_t{2}, 2);
    }
  }
}

}  // namespace

TensorMap make_tensor_map(const void* data, std::int64_t n_elements, std::int64_t n_rows, std::int64_t row_bytes,
                          int box_elements, int box_rows) {
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0 || row_bytes % 16 != 0 || box_rows > 256) {
    fail("such a matrix cannot have a tensor map");
  }
  const Faults faults = faults_of_environment();
  return {static_cast<const std::byte*>(data),
          n_elements,
          n_rows,
          row_bytes,
          box_elements,
          box_rows,
          faults.plain_tiles,
          faults.late_tiles};
}

void init_barrier(std::uint64_t* barrier, unsigned n_arrivals) {
  const Barrier begun = {0, static_cast<std::uint16_t>(n_arrivals & 0x7fff), 0, static_cast<std::uint16_t>(n_arrivals)};
  std::memcpy(barrier, &begun, sizeof begun);
}

void arrive(std::uint64_t* barrier, unsigned n_expected_bytes) {
  change(barrier, [&](Barrier& b) {
    if (b.n_missing == 0) fail("more arrivals than the barrier's count");
    b.n_bytes += static_cast<std::int32_t>(n_expected_bytes);
    b.n_missing = static_cast<std::uint16_t>(b.n_missing - 1) & 0x7fff;
  });
}

void wait(std::uint64_t* barrier, unsigned phase_parity) {
  const auto is_over = [&] {
    Barrier now;
    std::memcpy(&now, barrier, sizeof now);
    return now.phase != phase_parity;
  };
  while (!is_over()) give_way();
  note_progress();
}

std::uint32_t shared_offset(const void* shared) {
  const std::ptrdiff_t offset = static_cast<const unsigned char*>(shared) - dynamic_shared();
  if (offset < 0 || static_cast<std::size_t>(offset) >= dynamic_shared_bytes())
    fail("an address is not in shared memory");
  return static_cast<std::uint32_t>(offset);
}

void begin_tile_copy(void* to, const TensorMap& map, int element, int row, std::uint64_t* barrier) {
  if (shared_offset(to) % kTileAlignment != 0) fail("the address of a tile is not aligned");
  begin_beside([=] {
    copy_tile(static_cast<std::byte*>(to), map, element, row);
    change(barrier, [&](Barrier& b) { b.n_bytes -= map.box_rows * kTileRowBytes; });
  });
}

}  // namespace imp::cuda::emu
