// Opens, forks, truncates and closes sequences.
#pragma once

#include "engine/data/commands.h"
#include "engine/run/runs.h"
#include "engine/schedule/engine_state.h"

namespace imp {

// Each throws if it fails, and then has changed nothing.
class Sessions {
 public:
  Sessions(EngineState& state, Runs& runs) : state_(state), runs_(runs) {}

  void open(const OpenCommand& command, const CacheScope& scope);
  void fork(const ForkCommand& command);
  void truncate(const TruncateCommand& command);
  void close(const CloseCommand& command);
  void flush(const FlushCacheCommand& command);
  // The scheduler took an idle session's blocks.
  void evicted(Sequence& session);

 private:
  void check_position(std::int32_t position, const Sequence& sequence) const;

  EngineState& state_;
  Runs& runs_;
};

}  // namespace imp
