// Begins runs and ends them.
#include "engine/run/runs.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "engine/speculation/draft_report.h"

namespace imp {
namespace {

FinishReason finish_reason(EndReason reason) {
  switch (reason) {
    case EndReason::cancelled:
      return FinishReason::cancelled;
    case EndReason::aborted:
      return FinishReason::aborted;
    case EndReason::time_limit:
      return FinishReason::time_limit;
    case EndReason::stop:
      return FinishReason::stop;
  }
  return FinishReason::cancelled;
}

std::string held_by(const Sequence& sequence) {
  return std::to_string(sequence.held);
}

// Moves the fields that the run keeps. The sequence takes the tokens, the sampler and the siblings.
void take_fields(RunCommand& command, Run& run) {
  run.ticket = command.ticket;
  run.limits = std::move(command.limits);
  run.returns = command.returns;
  run.allowed = std::move(command.allowed);
  run.constrained = command.constrained;
  run.max_draft_tokens = command.max_draft_tokens;
  run.drafters = command.drafters;
  run.forced = std::move(command.forced);
  run.second_text = command.second_text;
  run.section = SectionProgress(command.budget);
  run.sparse_request = command.sparse;
}

// Replaces the sampler if the command has one, and sets the position of output index 0.
void set_sampler(const RunCommand& command, Sequence& sequence) {
  Run& run = *sequence.run;
  if (command.sampling) {
    run.before.sampler = sequence.sampler;
    sequence.set_sampler(*command.sampling);
  }
  if (command.base) {
    sequence.base = *command.base;
  } else if (command.sampling || command.rebase || sequence.base < 0) {
    sequence.base = run.start;
  }
}

// Tokens of the run that are outputs, since its base is before them, count in its section.
void count_outputs_before(const RunCommand& command, Sequence& sequence) {
  if (!command.base) return;
  const std::span<const std::int32_t> tokens = sequence.history();
  for (auto i = static_cast<std::size_t>(*command.base); i < tokens.size(); ++i) sequence.run->section.count(tokens[i]);
}

// Whether the last held row has to be evaluated again for its logits: to score the first new token, or to draw if there
// is no new token.
bool needs_last_row_again(const Sequence& sequence) {
  const Run& run = *sequence.run;
  if (sequence.n_left() > 0) return run.returns.scores && sequence.held > 0;
  return run.limits.max_outputs != 0 || run.returns.logits || run.returns.n_candidates > 0;
}

}  // namespace

void Runs::begin(RunCommand command, std::int64_t taken_ns) {
  const auto n_sequences = 1 + static_cast<int>(command.siblings.size());
  const auto n_tokens = static_cast<std::int64_t>(command.tokens.size());
  std::string tenant = std::move(command.tenant);
  Sequence* sequence = nullptr;
  try {
    sequence = &state_.idle_at(command.sequence);
    check(command, *sequence);
    prepare(command, *sequence, taken_ns);
    sparse_.decide(*sequence);
    state_.scheduler.enqueue(*sequence, state_.now_ns);
  } catch (...) {
    state_.admission.run_left_queue(tenant, n_sequences, n_tokens);
    if (sequence != nullptr) abandon(*sequence);
    throw;
  }
  Run& run = *sequence->run;
  run.n_queued = n_sequences;
  run.n_queued_tokens = n_tokens;
  run.queue_tenant = std::move(tenant);
  if (sequence->kind == SequenceKind::session) state_.scheduler.set_busy(*sequence);
  if (sequence->n_left() == 0) {  // nothing to draw and nothing to evaluate
    on_scheduled(*sequence);
    Draw nothing;
    nothing.sequence = sequence;
    on_evaluated(*sequence, {&nothing, 1});
  }
}

// The run failed to begin.
void Runs::abandon(Sequence& sequence) {
  if (sequence.run) {
    for (Sequence* sibling : sequence.run->siblings) erase(*sibling);
    sequence.restore();
    sequence.run.reset();
  }
  if (sequence.kind == SequenceKind::generation) erase(sequence);
}

void Runs::check(const RunCommand& command, const Sequence& sequence) const {
  if (command.position && *command.position != sequence.held) {
    throw StateError(
        Reason::POSITION_MISMATCH,
        "position " + std::to_string(*command.position) + " was expected, the session holds " + held_by(sequence),
        {{"expected", std::to_string(*command.position)}, {"held", held_by(sequence)}});
  }
  const bool nothing = command.tokens.empty() && !sequence.pending();
  if (nothing && (!command.resume || sequence.held == 0)) {
    throw StateError(Reason::NO_PENDING_TOKEN, "the request has no tokens and none is pending",
                     {{"held", held_by(sequence)}});
  }
  if (command.sparse.policy != SparsePolicy::dense && sequence.kind == SequenceKind::session) {
    throw FieldInvalid("sparse_prefill", "a session keeps every token for its later turns");
  }
  if (command.returns.vector && sequence.kind == SequenceKind::session) {
    throw FieldInvalid("vector", "a session makes no vector of its text");
  }
  if (!command.siblings.empty() && (sequence.kind != SequenceKind::generation || !sequence.tokens.empty())) {
    throw FieldInvalid("num_sequences", "a session has one sequence");
  }
  const int n_new = command.tokens.empty() ? sequence.n_left() : static_cast<int>(command.tokens.size());
  require_context(sequence.held + n_new, command.limits, state_.options.max_context);
  if (command.base && *command.base > sequence.held + n_new) {
    throw FieldInvalid("base", std::to_string(*command.base) + ", expected at most the position after this run, " +
                                   std::to_string(sequence.held + n_new));
  }
  // The runs of one request come together: its first one is checked for all.
  if (sequence.stream == 0 && state_.scheduler.over_waiting_share(sequence.tenant, state_.options.max_waiting)) {
    throw ResourceExhausted(Reason::TENANT_LIMIT, "the tenant's share of the queue is full while others wait");
  }
}

// Turns the command into the sequence's run.
void Runs::prepare(RunCommand& command, Sequence& sequence, std::int64_t taken_ns) {
  require_new(command.siblings);
  Run& run = sequence.run.emplace();
  run.before = {.held = sequence.held, .pending = sequence.pending(), .base = sequence.base, .sampler = {}};
  run.taken_ns = taken_ns;
  take_fields(command, run);
  run.is_whole = run.returns.vector && state_.pooling.needs_whole_texts;
  run.may_ask = run.constrained && run.max_draft_tokens > 0 && speculation_.is_on();
  reserve_memory(sequence, command.tokens.size());
  if (!command.tokens.empty()) add_tokens(command, sequence);
  run.start = static_cast<int>(sequence.tokens.size());
  set_sampler(command, sequence);
  count_outputs_before(command, sequence);
  if (needs_last_row_again(sequence)) --sequence.held;
  run.awaits_media = !sequence.is_text_from(sequence.held);
  state_.may_have_media |= !sequence.media.empty();
  if (run.returns.scores) run.scores.reserve(static_cast<std::size_t>(sequence.n_left()));
  add_siblings(command, sequence);
}

void Runs::add_tokens(RunCommand& command, Sequence& sequence) {
  sequence.cut_tokens(sequence.held);
  const auto first = static_cast<int>(sequence.tokens.size());
  sequence.tokens.insert(sequence.tokens.end(), command.tokens.begin(), command.tokens.end());
  if (command.media.empty()) return;
  media_.add_spans(sequence, first, std::move(command.media));
  speculation_.restart(sequence);
}

// Throws InvalidArgument if a sibling's id is listed twice or in use.
void Runs::require_new(std::span<const SequenceId> siblings) {
  for (const SequenceId id : siblings) {
    const bool twice = std::ranges::count(siblings, id) > 1;
    if (twice || state_.find(id) != nullptr) {
      throw FieldInvalid("siblings", std::to_string(id) + " is named twice or exists already");
    }
  }
}

// Reserves memory for every token that the run can hold, so that no step allocates.
void Runs::reserve_memory(Sequence& sequence, std::size_t n_new_tokens) {
  const Run& run = *sequence.run;
  const int max_outputs = run.limits.max_outputs < 0 ? state_.options.max_context : run.limits.max_outputs;
  const std::size_t wanted = sequence.tokens.size() + n_new_tokens + static_cast<std::size_t>(max_outputs) + 1;
  sequence.tokens.reserve(std::min(wanted, static_cast<std::size_t>(state_.options.max_context) + 1));
  sequence.table.blocks.reserve(static_cast<std::size_t>(state_.blocks.blocks_for(state_.options.max_context)));
  if (run.max_draft_tokens > 0 && !state_.options.drafters.empty()) sequence.reserve_ngrams();
}

void Runs::add_siblings(const RunCommand& command, Sequence& leader) {
  // The leader lists each sibling at once, so that a failure removes both.
  leader.run->siblings.reserve(command.siblings.size());
  for (const SequenceId id : command.siblings) {
    Sequence& sibling = state_.add(id);
    leader.run->siblings.push_back(&sibling);
    sibling.kind = leader.kind;
    sibling.priority = leader.priority;
    sibling.tenant = leader.tenant;
    sibling.scope = leader.scope;
    sibling.bypass_prefix = leader.bypass_prefix;
    sibling.set_sampler(leader.sampler);
    sibling.base = leader.base;
    Run& run = sibling.run.emplace(*leader.run);
    run.siblings.clear();
    run.returns.scores = false;
    run.leader = &leader;
    sibling.stream = static_cast<std::uint32_t>(leader.run->siblings.size());
    sibling.tokens.reserve(leader.tokens.capacity());
    sibling.media.reserve(leader.media.all().size());
    if (leader.ngrams.capacity() > 0) sibling.reserve_ngrams();
    sibling.table.blocks.reserve(leader.table.blocks.capacity());
  }
}

void Runs::set_mask(MaskCommand command, std::int64_t taken_ns) {
  Sequence* sequence = state_.find(command.sequence);
  if (sequence == nullptr || !sequence->run || sequence->run->ticket != command.ticket) return;  // the run has ended
  Run& run = *sequence->run;
  if (command.output < run.n_outputs || run.mask(command.output) != nullptr) return;
  const auto n_known = static_cast<std::int32_t>(run.given.tokens.size());
  const bool is_answer = run.given.output == run.n_outputs && command.output <= run.n_outputs + n_known;
  if (run.may_ask && !is_answer) return;  // it assumes other outputs
  if (run.given.taken_ns < 0) run.given.taken_ns = taken_ns;
  run.masks.push_back({command.output, command.end, std::move(command.allowed)});
  finish_if_done(*sequence);
}

// Of an answer that is already there, the masks assume its guesses.
void Runs::set_guesses(DraftCommand command, std::int64_t taken_ns) {
  Sequence* sequence = state_.find(command.sequence);
  if (sequence == nullptr || !sequence->run || sequence->run->ticket != command.ticket) return;  // the run has ended
  Run& run = *sequence->run;
  if (run.given.output >= 0 || command.output != run.n_outputs) return;
  run.given = {
      .output = command.output, .tokens = std::move(command.tokens), .forced = command.forced, .taken_ns = taken_ns};
}

void Runs::pause(const PauseCommand& command) {
  Sequence* sequence = state_.find(command.sequence);
  if (sequence == nullptr || !sequence->run || sequence->run->ticket != command.ticket) return;  // the run has ended
  Run& run = *sequence->run;
  if (run.paused() == command.paused) return;
  if (!command.paused) run.blocked_ns += state_.now_ns - run.paused_ns;
  run.paused_ns = command.paused ? state_.now_ns : -1;
}

bool Runs::end(const EndCommand& command) {
  Sequence* sequence = state_.find(command.sequence);
  if (sequence == nullptr) return false;  // the generation has ended
  if (!sequence->run || sequence->run->ticket != command.ticket) {
    const bool was_last = !sequence->run && sequence->last_start >= 0 && sequence->last_ticket == command.ticket;
    if (!was_last || !command.n_outputs) return false;
    sequence->keep_outputs(sequence->last_start, *command.n_outputs);
    state_.blocks.truncate(sequence->table, sequence->held);
    return false;
  }
  Run& run = *sequence->run;
  if (command.n_outputs.value_or(0) > run.n_outputs) {
    fail(*sequence, failure_of(Reason::NO_MEMORY, [&command, &run] {
      return FieldInvalid("n_outputs", std::to_string(*command.n_outputs) + ", expected at most the " +
                                           std::to_string(run.n_outputs) + " outputs drawn");
    }));
    return true;
  }
  if (run.started && command.n_outputs) {
    sequence->keep_outputs(run.start, *command.n_outputs);
    run.n_outputs = *command.n_outputs;
  }
  finish(*sequence, finish_reason(command.reason));
  return true;
}

void Runs::finish(Sequence& sequence, FinishReason reason) {
  if (!sequence.run->started) {
    Sequence& leader = sequence.run->leader != nullptr ? *sequence.run->leader : sequence;
    const std::vector<Sequence*> siblings = leader.detach_siblings();
    const auto end_unstarted = [this, reason](Sequence& ended) {
      ended.restore();
      report_finished(ended, reason, nullptr);
      close(ended);
    };
    leave_queue(leader);
    end_unstarted(leader);
    for (Sequence* sibling : siblings) end_unstarted(*sibling);
    return;
  }
  report_finished(sequence, reason, nullptr);
  close(sequence);
}

void Runs::fail(Sequence& sequence, const Failure& failure) {
  Sequence& leader = sequence.run->leader != nullptr ? *sequence.run->leader : sequence;
  const std::vector<Sequence*> siblings = leader.detach_siblings();
  const auto fail_one = [this, &failure](Sequence& failed) {
    const Run& run = *failed.run;
    failed.drop_guesses();
    if (!run.started) {
      failed.restore();
    } else {
      // Restores the sequence as before the failed step: what that step evaluated is pending again.
      failed.held = std::min(failed.held, static_cast<int>(failed.tokens.size()) - 1);
    }
    state_.report_failure(run.ticket, failed.id, failed.stream, failure);
    close(failed);
  };
  leave_queue(leader);
  fail_one(leader);
  for (Sequence* sibling : siblings) fail_one(*sibling);
}

// A part of a prompt whose evaluation fails is tried again as a whole.
void Runs::fail_step(Sequence& sequence, const Failure& failure) {
  if (!sequence.sparse || sequence.run->started) return fail(sequence, failure);
  sparse_.fall_back(sequence);
  state_.scheduler.requeue(sequence);
}

void Runs::report_finished(Sequence& sequence, FinishReason reason, Draw* stop) {
  const Run& run = *sequence.run;
  // A preempted generation holds no tokens in the cache, but its last output is still pending.
  const bool pending = run.started ? run.n_outputs > 0 && stop == nullptr : sequence.pending().has_value();
  const std::int64_t now = state_.now_ns;
  const std::int64_t admitted = run.scheduled_ns >= 0 ? run.scheduled_ns : now;
  const std::int64_t scheduled = run.scored_ns >= 0 ? run.scored_ns : admitted;
  const std::int64_t first = run.first_output_ns >= 0 ? run.first_output_ns : now;
  const std::int64_t last = run.last_output_ns >= 0 ? run.last_output_ns : first;
  FinishedEvent event;
  event.ticket = run.ticket;
  event.sequence = sequence.id;
  event.stream = sequence.stream;
  event.reason = reason;
  if (stop != nullptr) {
    event.stop_token = stop->result.token;
    event.eos = std::ranges::binary_search(run.limits.eos_tokens, stop->result.token);
    event.stop_logprob = stop->result.logprob;
    event.stop_candidates = std::move(stop->candidates);
  }
  event.n_outputs = run.n_outputs;
  event.position = static_cast<std::int32_t>(sequence.history().size()) - (pending ? 1 : 0);
  event.pending = pending;
  event.timings = {.queue_ns = scheduled - run.taken_ns,
                   .prefill_ns = first - scheduled,
                   .decode_ns = last - first,
                   .blocked_ns = run.blocked_ns + (run.paused() ? now - run.paused_ns : 0),
                   .encode_ns = run.encode_ns};
  event.n_preemptions = run.n_preemptions;
  event.drafts = run.drafts;
  event.drafters = counts_of(run, state_.stats.drafters);
  event.drafts_off = why_off(run, sequence.drafting, !state_.stats.drafters.front().name.empty());
  state_.events.emplace_back(std::move(event));
}

// Reports the end of the run with what the sequence holds now.
void Runs::close(Sequence& sequence) {
  state_.scheduler.remove(sequence);
  sequence.last_ticket = sequence.run->ticket;
  sequence.last_start = sequence.run->started ? sequence.run->start : -1;
  sequence.run.reset();
  if (sequence.kind == SequenceKind::generation) {
    erase(sequence);
  } else {
    state_.blocks.truncate(sequence.table, sequence.held);
    state_.blocks.park_state(sequence.table);
    state_.scheduler.set_idle(sequence, state_.now_ns);
  }
}

void Runs::erase(Sequence& sequence) {
  speculation_.forget(sequence);
  sparse_.forget(sequence);
  state_.blocks.truncate(sequence.table, 0);
  if (sequence.kind == SequenceKind::session) {
    state_.scheduler.set_busy(sequence);
    state_.admission.session_closed();
  }
  state_.sequences.erase(sequence.id);
}

}  // namespace imp
