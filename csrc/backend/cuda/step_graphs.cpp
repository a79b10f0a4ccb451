// The LRU list of graphs.
#include "backend/cuda/step_graphs.h"

#include <algorithm>

namespace imp::cuda {

StepGraphs::Entry& StepGraphs::find(const StepKey& key) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return entries_.front();
  }
  if (entries_.size() == capacity_) {
    if (entries_.back().graph != nullptr) {
      synchronize(stream_);  // it may still be in flight
      ++counts_.evictions;
    }
    entries_.pop_back();
  }
  entries_.emplace_front().key = key;
  return entries_.front();
}

void StepGraphs::replay(Entry& entry) {
  launches_.add_all(entry.launches);
  entry.graph->replay(stream_);
}

}  // namespace imp::cuda
