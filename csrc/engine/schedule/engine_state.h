// State shared by the parts of the engine's thread. The loop owns it; only that thread touches it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/data/engine_stats.h"
#include "engine/data/events.h"
#include "engine/data/failure.h"
#include "engine/kv/kv_blocks.h"
#include "engine/schedule/admission_control.h"
#include "engine/schedule/scheduler.h"
#include "engine/sequence/sequence.h"
#include "model/forward_pass.h"

namespace imp {

struct EngineState {
  const EngineOptions& options;
  AdmissionControl& admission;
  PoolingFacts pooling;
  KvBlocks blocks;
  Scheduler scheduler;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences;
  std::vector<Event> events;  // of this iteration, oldest first
  EngineStats stats;
  std::int64_t now_ns = 0;      // of this iteration
  bool may_have_media = false;  // false: no sequence with a run has media

  Sequence* find(SequenceId id) {
    const auto found = sequences.find(id);
    return found == sequences.end() ? nullptr : found->second.get();
  }

  // Throws StateError(SESSION_NOT_FOUND).
  Sequence& at(SequenceId id) {
    Sequence* found = find(id);
    if (found == nullptr) {
      throw StateError(Reason::SESSION_NOT_FOUND, "sequence " + std::to_string(id) + " is not open");
    }
    return *found;
  }

  // Throws StateError(SESSION_BUSY) if the sequence has a run.
  Sequence& idle_at(SequenceId id) {
    Sequence& sequence = at(id);
    if (sequence.run) throw StateError(Reason::SESSION_BUSY, "another step of the session is running");
    return sequence;
  }

  // Throws InvalidArgument if the id is in use.
  Sequence& add(SequenceId id) {
    auto made = std::make_unique<Sequence>();
    made->id = id;
    const auto [place, added] = sequences.try_emplace(id, std::move(made));
    if (!added) throw FieldInvalid("sequence", std::to_string(id) + " is open already");
    return *place->second;
  }

  // Allocates nothing if `events` has spare capacity.
  void report_failure(Ticket ticket, SequenceId sequence, std::uint32_t stream, const Failure& failure) {
    FailedEvent event{.ticket = ticket,
                      .sequence = sequence,
                      .stream = stream,
                      .reason = failure.reason,
                      .message = kOutOfMemory,
                      .details = {}};
    try {
      event.message = failure.message;
      event.details = failure.details;
    } catch (const std::bad_alloc&) {  // the reason is reported without its text
    }
    events.emplace_back(std::move(event));
  }
};

}  // namespace imp
