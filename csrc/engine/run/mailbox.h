// The queues between the engine's thread and its callers: commands in, events and stats out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/data/events.h"
#include "engine/run/engine.h"
#include "engine/schedule/admission_control.h"

namespace imp {

// The lock is held only to move vectors, never during a step.
class Mailbox {
 public:
  Mailbox(int max_queued_events, Clock clock);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // For callers.
  // Queues all commands, or throws bad_alloc and leaves `commands` unchanged.
  void put(std::vector<AcceptedCommand>&& commands);
  // Between hold() and release() commands are queued but not taken. Holds nest.
  void hold();
  void release();
  // Moves all queued events, oldest first, into `out`, and reuses the memory of `out` for later events.
  void drain(std::vector<Event>& out);
  int event_descriptor() const noexcept { return descriptor_; }
  EngineStats stats() const;

  // For the engine's thread.
  enum class Wake : std::uint8_t { run, full, stopped };
  // Takes the queued commands. Waits while there are none and the engine is idle, or while the event queue is full; in
  // the second case commands may arrive, but the engine must run no step.
  Wake take(std::vector<AcceptedCommand>& out, bool idle);
  // Queues the events, and signals the eventfd if the queue was empty. Throws bad_alloc and queues none.
  void publish(std::vector<Event>& events, const EngineStats& stats);
  void stop();

 private:
  static constexpr std::int64_t kNotBusy = -1;

  bool has_commands() const noexcept { return n_holds_ == 0 && !commands_.empty(); }
  bool full() const noexcept { return events_.size() >= max_queued_events_; }

  const std::size_t max_queued_events_;
  const Clock clock_;
  int descriptor_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<AcceptedCommand> commands_;
  int n_holds_ = 0;
  std::vector<Event> events_;
  EngineStats stats_;
  std::uint64_t n_wakeups_ = 0;
  std::int64_t busy_since_ns_ = kNotBusy;
  bool stopped_ = false;
};

}  // namespace imp
