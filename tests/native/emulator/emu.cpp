// The scheduler of fibers, and their shared state: barriers, slots and pending copies.
#include "native/emulator/emu.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "base/ceil_div.h"
#include "native/emulator/fibers.h"

namespace imp::cuda::emu {

Place place;

namespace {

// A barrier of a group: it opens when all of its threads have arrived.
struct Meeting {
  unsigned n_members = 0;
  unsigned n_arrived = 0;
  std::uint64_t n_held = 0;
};

struct Copy {
  void* to;
  const void* from;
  std::size_t n_bytes, n_zero_bytes;
};

struct Thread {
  Fiber fiber;
  Place place;
  bool is_done = false;
  const Meeting* meeting = nullptr;  // the barrier that it waits for
  std::uint64_t n_held = 0;
  std::deque<std::vector<Copy>> copies;                     // committed groups, oldest first, and the open one
  std::deque<std::vector<std::function<void()>>> products;  // the same for products
};

struct Block {
  std::vector<std::unique_ptr<Thread>> threads;  // as many as the largest block so far
  unsigned n_threads = 0;
  unsigned n_live = 0;
  Meeting whole;
  std::vector<Meeting> warps;
  std::vector<Meeting> warpgroups;
  std::vector<unsigned char> slots;
  std::vector<unsigned char> shared;
  Fiber scheduler;
  const std::function<void()>* body = nullptr;
  std::uint64_t progress = 0;                // a round of all threads without progress is a deadlock
  std::deque<std::function<void()>> beside;  // started work, in its order
  bool begins_at_once = false;
};

// One grid runs at a time: __shared__ is static memory.
std::mutex grid_lock;
Block block;

Thread& current() {
  return *block.threads[place.linear];
}

Place place_of(unsigned linear) {
  Place at = place;
  at.linear = linear;
  const dim3 dim = place.block_dim;
  at.thread = dim3(linear % dim.x, linear / dim.x % dim.y, linear / (dim.x * dim.y));
  return at;
}

void to_scheduler() {
  Thread& self = current();
  Fiber::switch_between(self.fiber, block.scheduler);
}

void meet(Meeting& meeting) {
  const std::uint64_t before = meeting.n_held;
  ++block.progress;
  if (++meeting.n_arrived == meeting.n_members) {
    meeting.n_arrived = 0;
    ++meeting.n_held;
    return;
  }
  Thread& self = current();
  self.meeting = &meeting;
  self.n_held = before;
  to_scheduler();
  self.meeting = nullptr;
}

// As on the device, the barrier of a block does not wait for threads that have ended; that of a group does.
void leave(Meeting& meeting) {
  --meeting.n_members;
  if (meeting.n_members == 0 || meeting.n_arrived != meeting.n_members) return;
  meeting.n_arrived = 0;
  ++meeting.n_held;
}

void thread_main() {
  (*block.body)();
  Thread& self = current();
  if (self.products.size() > 1 || !self.products.front().empty())
    fail("a thread ended before it waited for its products");
  self.is_done = true;
  --block.n_live;
  ++block.progress;
  leave(block.whole);
  to_scheduler();
}

std::vector<Meeting> groups_of(unsigned n_threads, unsigned size) {
  std::vector<Meeting> groups;
  for (unsigned first = 0; first < n_threads; first += size)
    groups.push_back({std::min(size, n_threads - first), 0, 0});
  return groups;
}

void prepare_block() {
  std::ranges::fill(block.shared, static_cast<unsigned char>(0xff));
  block.whole = {block.n_threads, 0, 0};
  block.warps = groups_of(block.n_threads, 32);
  block.warpgroups = groups_of(block.n_threads, 128);
  block.n_live = block.n_threads;
  for (unsigned i = 0; i < block.n_threads; ++i) {
    Thread& thread = *block.threads[i];
    thread.place = place_of(i);
    thread.is_done = false;
    thread.meeting = nullptr;
    thread.copies.assign(1, {});
    thread.products.assign(1, {});
    thread.fiber.start(thread_main);
  }
}

void run_block(const std::vector<unsigned>& order) {
  prepare_block();
  while (block.n_live > 0) {
    const std::uint64_t before = block.progress;
    for (const unsigned i : order) {
      Thread& thread = *block.threads[i];
      if (thread.is_done || (thread.meeting != nullptr && thread.meeting->n_held == thread.n_held)) continue;
      place = thread.place;
      Fiber::switch_between(block.scheduler, thread.fiber);
    }
    if (block.progress == before && !block.beside.empty()) {
      const std::function<void()> work = std::move(block.beside.front());
      block.beside.pop_front();
      work();
      ++block.progress;
    }
    if (block.progress == before) {
      std::fprintf(stderr, "emulated kernel: block (%u, %u, %u): %u threads wait for ever\n", place.block.x,
                   place.block.y, place.block.z, block.n_live);
      std::abort();
    }
  }
  if (!block.beside.empty()) fail("a block ended before its asynchronous work");
}

}  // namespace

void run_grid(dim3 grid, dim3 block_dim, std::size_t shared_bytes, unsigned thread_order,
              const std::function<void()>& body) {
  const std::lock_guard lock(grid_lock);
  block.n_threads = block_dim.x * block_dim.y * block_dim.z;
  if (block.n_threads > 1024) fail("a block has at most 1024 threads");
  if (grid.x > 0x7FFFFFFF || grid.y > 0xFFFF || grid.z > 0xFFFF) fail("a grid is at most 2^31 - 1 by 65535 by 65535");
  if (shared_bytes > std::size_t{227} << 10) fail("a block has at most 227 KiB of shared memory");
  while (block.threads.size() < block.n_threads) block.threads.push_back(std::make_unique<Thread>());
  block.slots.resize(block.n_threads * kSlotBytes + 64);
  block.shared.resize(shared_bytes + 1024);
  block.body = &body;
  block.begins_at_once = thread_order % 2 != 0;
  std::vector<unsigned> order(block.n_threads);
  for (unsigned i = 0; i < block.n_threads; ++i) order[i] = i;
  std::mt19937 random(thread_order);
  if (thread_order != 0) std::shuffle(order.begin(), order.end(), random);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        place = {.thread = {}, .block = dim3(x, y, z), .block_dim = block_dim, .grid_dim = grid};
        run_block(order);
      }
    }
  }
}

unsigned char* dynamic_shared() noexcept {
  // The largest alignment that a kernel may need.
  const auto address = reinterpret_cast<std::uintptr_t>(block.shared.data());
  return block.shared.data() + (round_up(address, 1024) - address);
}

std::size_t dynamic_shared_bytes() noexcept {
  return block.shared.size() - 1024;
}

void meet_block() {
  meet(block.whole);
}

void meet_group(unsigned n) {
  if (n == 32) return meet(block.warps[place.linear / 32]);
  if (n == 128) return meet(block.warpgroups[place.linear / 128]);
  fail("only warps and warpgroups have barriers");
}

unsigned char* slot_of(unsigned linear_thread) noexcept {
  return block.slots.data() + linear_thread * kSlotBytes;
}

void give_way() {
  to_scheduler();
}

void note_progress() noexcept {
  ++block.progress;
}

void fail(const char* message) {
  std::fprintf(stderr, "emulated kernel: %s\n", message);
  std::abort();
}

void begin_beside(std::function<void()> work) {
  ++block.progress;
  if (block.begins_at_once) return work();
  block.beside.push_back(std::move(work));
}

void begin_product(std::function<void()> part) {
  current().products.back().push_back(std::move(part));
}

void end_product_group() {
  current().products.emplace_back();
}

void wait_for_products(unsigned n_groups_under_way) {
  auto& groups = current().products;
  while (groups.size() > n_groups_under_way + 1) {
    for (const std::function<void()>& part : groups.front()) part();
    groups.pop_front();
  }
}

void begin_copy(void* to, const void* from, std::size_t n_bytes, std::size_t n_zero_bytes) {
  current().copies.back().push_back({to, from, n_bytes, n_zero_bytes});
}

void end_copy_group() {
  current().copies.emplace_back();
}

void wait_for_copies(unsigned n_groups_under_way) {
  std::deque<std::vector<Copy>>& groups = current().copies;
  while (groups.size() > n_groups_under_way + 1) {
    for (const Copy& copy : groups.front()) {
      std::memcpy(copy.to, copy.from, copy.n_bytes);
      std::memset(static_cast<std::byte*>(copy.to) + copy.n_bytes, 0, copy.n_zero_bytes);
    }
    groups.pop_front();
  }
}

}  // namespace imp::cuda::emu
