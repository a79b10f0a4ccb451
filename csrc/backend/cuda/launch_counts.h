// Launches of each op and kernel, with those of replayed steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace imp::cuda {

// Written by the thread of the ops, read from any.
class LaunchCounts {
 public:
  explicit LaunchCounts(std::size_t n) : counts_(n) {}

  std::size_t size() const noexcept { return counts_.size(); }
  void add(std::size_t which) noexcept { counts_[which].fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t operator[](std::size_t which) const noexcept { return counts_[which].load(std::memory_order_relaxed); }

  std::vector<std::uint64_t> snapshot() const {
    std::vector<std::uint64_t> counts;
    for (const auto& count : counts_) counts.push_back(count.load(std::memory_order_relaxed));
    return counts;
  }
  // Launches since a snapshot.
  std::vector<std::uint64_t> since(std::vector<std::uint64_t> snapshot) const {
    for (std::size_t i = 0; i < snapshot.size(); ++i) snapshot[i] = (*this)[i] - snapshot[i];
    return snapshot;
  }
  void add_all(std::span<const std::uint64_t> counts) noexcept {
    for (std::size_t i = 0; i < counts.size(); ++i) counts_[i].fetch_add(counts[i], std::memory_order_relaxed);
  }

 private:
  std::vector<std::atomic<std::uint64_t>> counts_;
};

}  // namespace imp::cuda
