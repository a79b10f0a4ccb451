// Two queues under one lock, and an eventfd.
#include "engine/run/mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace imp {
namespace {

// Appends all, or throws bad_alloc and appends none. Does not empty `from`.
template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  const std::size_t wanted = to.size() + from.size();
  if (wanted > to.capacity()) to.reserve(std::max(wanted, 2 * to.capacity()));
  static_assert(std::is_nothrow_move_constructible_v<T>);
  std::ranges::move(from, std::back_inserter(to));
}

}  // namespace

Mailbox::Mailbox(int max_queued_events, Clock clock)
    : max_queued_events_(static_cast<std::size_t>(max_queued_events)),
      clock_(std::move(clock)),
      descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) {
    throw ResourceExhausted(Reason::NO_MEMORY, std::string("eventfd: ") + std::strerror(errno));
  }
}

Mailbox::~Mailbox() {
  ::close(descriptor_);
}

void Mailbox::put(std::vector<AcceptedCommand>&& commands) {
  {
    const std::lock_guard lock(mutex_);
    append(commands_, commands);
    // The engine counts as busy from now on, even before its thread wakes up.
    if (busy_since_ns_ == kNotBusy) busy_since_ns_ = clock_();
    // While commands are held, there is nothing that the thread could take.
    if (!has_commands()) return;
  }
  changed_.notify_one();
}

void Mailbox::hold() {
  const std::lock_guard lock(mutex_);
  ++n_holds_;
}

void Mailbox::release() {
  {
    const std::lock_guard lock(mutex_);
    --n_holds_;
    if (!has_commands()) return;
  }
  changed_.notify_one();
}

void Mailbox::drain(std::vector<Event>& out) {
  out.clear();
  bool was_full = false;
  {
    const std::lock_guard lock(mutex_);
    std::uint64_t rings = 0;
    // An empty eventfd is no error: it was read before.
    [[maybe_unused]] const ssize_t n_read = ::read(descriptor_, &rings, sizeof rings);
    was_full = full();
    std::swap(out, events_);
  }
  if (was_full) changed_.notify_one();
}

EngineStats Mailbox::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.n_wakeups = n_wakeups_;
  stats.silence_ns = busy_since_ns_ == kNotBusy ? 0 : clock_() - busy_since_ns_;
  return stats;
}

Mailbox::Wake Mailbox::take(std::vector<AcceptedCommand>& out, bool idle) {
  out.clear();
  std::unique_lock lock(mutex_);
  const auto must_wait = [&] { return !stopped_ && !has_commands() && (idle || full()); };
  if (must_wait()) {
    busy_since_ns_ = kNotBusy;
    changed_.wait(lock, [&] { return !must_wait(); });
    if (busy_since_ns_ == kNotBusy) busy_since_ns_ = clock_();
  }
  if (stopped_) return Wake::stopped;
  if (has_commands()) std::swap(out, commands_);
  return full() ? Wake::full : Wake::run;
}

void Mailbox::publish(std::vector<Event>& events, const EngineStats& stats) {
  const std::lock_guard lock(mutex_);
  stats_ = stats;
  const bool ring = events_.empty() && !events.empty();
  append(events_, events);  // no swap: the engine's vector keeps its capacity, so that no step allocates
  events.clear();
  busy_since_ns_ = clock_();  // the next iteration begins; an engine that cannot publish its events counts as silent
  if (!ring) return;
  ++n_wakeups_;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n_written = ::write(descriptor_, &one, sizeof one);
}

void Mailbox::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
}

}  // namespace imp
