// CUDA graphs: steps of one shape are captured once and replayed, one launch instead of some hundred.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include "backend/cuda/device/runtime.h"
#include "backend/cuda/launch_counts.h"
#include "backend/step_graph_counts.h"

namespace imp::cuda {

// Steps with equal keys do the same work on the same addresses; only memory contents differ.
struct StepKey {
  const void* body = nullptr;
  const void* pool = nullptr;
  int n_rows = 0;
  bool has_logits = false;

  bool operator==(const StepKey&) const = default;
};

// An LRU cache of at most `capacity` graphs. A key's first step is eager, since a kernel that never ran cannot be
// captured.
class StepGraphs {
 public:
  // Each replay adds the captured launches to `launches`.
  StepGraphs(Stream& stream, LaunchCounts& launches, std::size_t capacity)
      : stream_(stream), launches_(launches), capacity_(capacity) {}

  // Calls step(), or replays what it did before.
  template <class Step>
  void run(const StepKey& key, const Step& step);

  // Call before allocating memory that steps read: an old graph may hold the same address for freed memory. The device
  // must be idle.
  void clear() noexcept { entries_.clear(); }

  const StepGraphCounts& counts() const noexcept { return counts_; }
  // A step without a key.
  void count_eager() noexcept { ++counts_.eager; }

 private:
  struct Entry {
    StepKey key;
    bool has_run = false;
    std::unique_ptr<Graph> graph;         // null until its second step
    std::vector<std::uint64_t> launches;  // of one replay
    bool is_eager = false;                // its capture failed
  };
  // The entry of the key, moved to the front; new if there is none.
  Entry& find(const StepKey& key);

  void replay(Entry& entry);

  Stream& stream_;
  LaunchCounts& launches_;
  std::size_t capacity_;
  std::list<Entry> entries_;  // most recently used first
  StepGraphCounts counts_;
};

template <class Step>
void StepGraphs::run(const StepKey& key, const Step& step) {
  if (!stream_.is_ok()) return step();  // nothing started, and an earlier error is not a failed capture
  Entry& entry = find(key);
  if (entry.graph != nullptr) {
    ++counts_.replays;
    return replay(entry);
  }
  if (!entry.has_run || entry.is_eager) {
    ++counts_.eager;
    step();
    entry.has_run = true;
    return;
  }
  auto graph = std::make_unique<Graph>();
  const std::vector<std::uint64_t> before = launches_.snapshot();
  graph->begin(stream_);
  try {
    step();
  } catch (...) {
    graph->end(stream_);
    throw;
  }
  if (const Status status = graph->end(stream_); !status.is_ok()) {
    stream_.forget_failure();  // if the device itself is lost, it fails again
    entry.is_eager = true;
    ++counts_.failures;
    counts_.last_failure = status.name;
    ++counts_.eager;
    return step();
  }
  ++counts_.captures;
  entry.graph = std::move(graph);
  entry.launches = launches_.since(before);
  entry.graph->replay(stream_);
}

}  // namespace imp::cuda
