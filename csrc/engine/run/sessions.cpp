// Commands on a sequence between its runs.
#include "engine/run/sessions.h"

#include <algorithm>
#include <string>

namespace imp {

void Sessions::open(const OpenCommand& command, const CacheScope& scope) {
  const bool session = command.kind == SequenceKind::session;
  Sequence* opened = nullptr;
  try {
    opened = &state_.add(command.sequence);
    Sequence& sequence = *opened;
    sequence.kind = command.kind;
    sequence.priority = command.priority;
    sequence.tenant = command.tenant;
    sequence.scope = scope;
    sequence.bypass_prefix = command.bypass_prefix;
    sequence.stream = command.stream;
    sequence.set_sampler(command.sampling);
    if (session) state_.scheduler.set_idle(sequence, state_.now_ns);
  } catch (...) {
    if (opened != nullptr) {
      runs_.erase(*opened);  // erase() also decrements the count of sessions
    } else if (session) {
      state_.admission.session_closed();
    }
    throw;
  }
}

void Sessions::fork(const ForkCommand& command) {
  Sequence* made = nullptr;
  try {
    const Sequence& parent = state_.idle_at(command.sequence);
    const std::int32_t position = command.position.value_or(parent.held);
    check_position(position, parent);
    made = &state_.add(command.copy);
    Sequence& copy = *made;
    copy.kind = SequenceKind::session;
    copy.priority = parent.priority;
    copy.tenant = parent.tenant;
    copy.scope = parent.scope;
    copy.bypass_prefix = parent.bypass_prefix;
    copy.set_sampler(parent.sampler);
    copy.base = std::min(parent.base, position);
    copy.held = position;
    const std::size_t n_tokens = position == parent.held ? parent.tokens.size() : static_cast<std::size_t>(position);
    copy.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + static_cast<std::ptrdiff_t>(n_tokens));
    copy.media.copy_from(parent.media);
    copy.media.truncate(position);
    state_.blocks.share(parent.table, position, copy.table);
    state_.scheduler.set_idle(copy, state_.now_ns);
    state_.events.emplace_back(DoneEvent{.ticket = command.ticket, .sequence = copy.id, .position = position});
  } catch (...) {
    if (made != nullptr) {
      runs_.erase(*made);  // erase() also decrements the count of sessions
    } else {
      state_.admission.session_closed();
    }
    throw;
  }
}

void Sessions::truncate(const TruncateCommand& command) {
  Sequence& sequence = state_.idle_at(command.sequence);
  check_position(command.position, sequence);
  if (command.position < sequence.held) {
    sequence.held = command.position;
    sequence.cut_tokens(command.position);
    sequence.base = std::min(sequence.base, command.position);
    sequence.last_start = -1;
    state_.blocks.truncate(sequence.table, command.position);
  }
  state_.events.emplace_back(
      DoneEvent{.ticket = command.ticket, .sequence = sequence.id, .position = command.position});
}

void Sessions::close(const CloseCommand& command) {
  Sequence* sequence = state_.find(command.sequence);
  DoneEvent done{.ticket = command.ticket, .sequence = command.sequence, .existed = sequence != nullptr};
  if (sequence != nullptr && sequence->run) {
    runs_.finish(*sequence, FinishReason::cancelled);
    sequence = state_.find(command.sequence);
  }
  if (sequence != nullptr) {
    done.position = sequence->held;
    runs_.erase(*sequence);
  }
  state_.events.emplace_back(done);
}

void Sessions::flush(const FlushCacheCommand& command) {
  const int n_freed = state_.blocks.flush();
  state_.events.emplace_back(DoneEvent{.ticket = command.ticket, .freed_blocks = n_freed});
}

void Sessions::evicted(Sequence& session) {
  state_.report_failure(0, session.id, session.stream, failure_of(Reason::SESSION_EXPIRED, [] {
                          return StateError(Reason::SESSION_EXPIRED,
                                            "other work needed the session's blocks, and it was idle for longest");
                        }));
  runs_.erase(session);
}

void Sessions::check_position(std::int32_t position, const Sequence& sequence) const {
  const std::string wanted = std::to_string(position), held = std::to_string(sequence.held);
  if (position > sequence.held) {
    throw InvalidArgument(Reason::POSITION_BEYOND_END, "position " + wanted + " is beyond the " + held + " tokens held",
                          {{"position", wanted}, {"held", held}});
  }
  if (sequence.media.may_cut(position)) return;
  const MediaSpan& span = *sequence.media.span_at(position);
  const std::string first = std::to_string(span.first), end = std::to_string(span.end());
  throw InvalidArgument(Reason::POSITION_INSIDE_MEDIA,
                        "position " + wanted + " is inside an image, from " + first + " to before " + end,
                        {{"position", wanted}, {"first", first}, {"end", end}});
}

}  // namespace imp
