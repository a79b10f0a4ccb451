// Between the engine's thread and everyone else: commands in, events and numbers out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/door.h"
#include "engine/engine.h"
#include "engine/events.h"

namespace imp {

// Its lock is held for moves of vectors, never across a step, so that neither side waits for the other's work.
class Mailbox {
 public:
  Mailbox(int max_queued_events, Engine::Clock clock);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // For callers.
  // All or, where it throws for want of memory, none: then `commands` is as it was.
  void put(std::vector<Accepted>&& commands);
  // Between hold() and let_go() commands are queued, but not taken. Holds nest.
  void hold();
  void let_go();
  // Takes all queued events, oldest first, into `out`, whose memory is used for those to come.
  void drain(std::vector<Event>& out);
  int event_descriptor() const noexcept { return descriptor_; }
  EngineStats stats() const;

  // For the engine's thread.
  enum class Wake : std::uint8_t { go_on, full, stopped };
  // Takes the commands that have come. Waits where there are none and `idle` says that nothing else is to be done, or
  // where the events are full; then commands may come, but no step is to be run.
  Wake take(std::vector<Accepted>& out, bool idle);
  // Queues the events, and rings once where there were none. Where it throws for want of memory, none is taken.
  void publish(std::vector<Event>& events, const EngineStats& stats);
  void stop();

 private:
  static constexpr std::int64_t kNotBusy = -1;

  bool has_commands() const noexcept { return n_holds_ == 0 && !commands_.empty(); }
  bool full() const noexcept { return events_.size() >= max_queued_events_; }

  const std::size_t max_queued_events_;
  const Engine::Clock clock_;
  int descriptor_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Accepted> commands_;
  int n_holds_ = 0;
  std::vector<Event> events_;
  EngineStats stats_;
  std::uint64_t n_wakeups_ = 0;
  std::int64_t busy_since_ns_ = kNotBusy;
  bool stopped_ = false;
};

}  // namespace imp
