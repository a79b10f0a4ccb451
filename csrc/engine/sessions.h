// Sequences without a run: opened, forked, shortened and closed.
#pragma once

#include "engine/commands.h"
#include "engine/engine_state.h"
#include "engine/runs.h"

namespace imp {

// Each throws where it cannot be done; then nothing has changed.
class Sessions {
 public:
  Sessions(EngineState& state, Runs& runs) : state_(state), runs_(runs) {}

  void open(const OpenCommand& command, const CacheScope& scope);
  void fork(const ForkCommand& command);
  void truncate(const TruncateCommand& command);
  void close(const CloseCommand& command);
  void flush(const FlushCacheCommand& command);
  // The scheduler has taken an idle session's blocks.
  void evicted(Sequence& session);

 private:
  void check_position(std::int32_t position, const Sequence& sequence) const;

  EngineState& state_;
  Runs& runs_;
};

}  // namespace imp
