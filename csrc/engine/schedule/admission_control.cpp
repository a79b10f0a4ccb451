// The field rules of every command, and the limits of the queue.
#include "engine/schedule/admission_control.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "engine/data/limits.h"
#include "engine/data/token_mask.h"
#include "engine/kv/kv_blocks.h"
#include "engine/schedule/field_checks.h"
#include "engine/schedule/vector_checks.h"

namespace imp {
namespace {

// What commands take of sessions and of the queue.
struct Taken {
  int n_sessions = 0;
  std::string tenant;  // of the runs
  int n_sequences = 0;
  std::int64_t n_tokens = 0;
};

Taken taken_by(std::span<const AcceptedCommand> accepted) {
  Taken taken;
  for (const AcceptedCommand& each : accepted) {
    const auto* open = std::get_if<OpenCommand>(&each.command);
    const bool is_session = open != nullptr && open->kind == SequenceKind::session;
    if (is_session || std::holds_alternative<ForkCommand>(each.command)) ++taken.n_sessions;
    const auto* run = std::get_if<RunCommand>(&each.command);
    if (run == nullptr) continue;
    IMP_CHECK(taken.n_sequences == 0 || taken.tenant == run->tenant);
    taken.tenant = run->tenant;
    taken.n_sequences += 1 + static_cast<int>(run->siblings.size());
    taken.n_tokens += static_cast<std::int64_t>(run->tokens.size());
  }
  return taken;
}

}  // namespace

void require_context(std::int64_t n_tokens, const RunLimits& limits, int max_context) {
  // The last output is not evaluated, so it needs no position.
  const std::int64_t most = max_context - n_tokens + 1;
  const bool outputs_fit = !limits.must_fit || limits.max_outputs <= most;
  if (n_tokens <= max_context && outputs_fit) return;
  const std::string context = "the context of " + std::to_string(max_context);
  const std::string found = std::to_string(n_tokens) + " tokens";
  throw InvalidArgument(
      Reason::CONTEXT_TOO_LONG,
      n_tokens > max_context ? found + " exceed " + context
                             : found + " leave room for " + std::to_string(most) + " outputs in " + context +
                                   ", max_tokens is " + std::to_string(limits.max_outputs),
      {{"prompt_tokens", std::to_string(n_tokens)}, {"max_context_tokens", std::to_string(max_context)}});
}

std::vector<AcceptedCommand> AdmissionControl::accept(std::vector<Command> commands, std::int64_t taken_ns) {
  std::vector<AcceptedCommand> accepted;
  accepted.reserve(commands.size());
  for (Command& command : commands) {
    std::visit([this](const auto& checked) { check(checked); }, command);
    const auto* open = std::get_if<OpenCommand>(&command);
    CacheScope scope = open == nullptr ? CacheScope{} : hashed_scope(facts_.secret, open->cache_scope, open->tenant);
    accepted.push_back({.command = std::move(command), .scope = std::move(scope), .taken_ns = taken_ns});
  }
  const Taken taken = taken_by(accepted);
  const std::lock_guard lock(mutex_);
  if (taken.n_sessions > 0 && n_sessions_ + taken.n_sessions > options_.max_sessions) {
    throw ResourceExhausted(Reason::SESSIONS_FULL, std::to_string(n_sessions_) + " sessions are open, the limit");
  }
  if (taken.n_sequences > 0) places_.take(taken.tenant, taken.n_sequences, taken.n_tokens);
  n_sessions_ += taken.n_sessions;
  return accepted;
}

void AdmissionControl::withdraw(std::span<const AcceptedCommand> accepted) {
  const Taken taken = taken_by(accepted);
  const std::lock_guard lock(mutex_);
  n_sessions_ -= taken.n_sessions;
  if (taken.n_sequences > 0) places_.give_back(taken.tenant, taken.n_sequences, taken.n_tokens);
}

void AdmissionControl::run_left_queue(const std::string& tenant, int n_sequences, std::int64_t n_tokens) {
  const std::lock_guard lock(mutex_);
  places_.give_back(tenant, n_sequences, n_tokens);
}

void AdmissionControl::session_closed() {
  const std::lock_guard lock(mutex_);
  --n_sessions_;
}

int AdmissionControl::waiting() const {
  const std::lock_guard lock(mutex_);
  return places_.n_waiting();
}

std::int64_t AdmissionControl::waiting_tokens() const {
  const std::lock_guard lock(mutex_);
  return places_.n_tokens();
}

int AdmissionControl::sessions() const {
  const std::lock_guard lock(mutex_);
  return n_sessions_;
}

QueuePlace AdmissionControl::place_of(const std::string& tenant, int n_own, int n_coming) const {
  const std::lock_guard lock(mutex_);
  return places_.place_of(tenant, n_own, n_coming);
}

void AdmissionControl::check(const OpenCommand& command) const {
  if (facts_.vocab_size == 0 && command.kind == SequenceKind::session) {
    refuse("kind", "session", "generation: the model makes no logits");
  }
  validate(command.sampling, n_tokens_);
  check_range("priority", command.priority, -kLimits.priority, kLimits.priority);
  check_bytes("tenant", command.tenant, kLimits.tenant_bytes);
  check_bytes("cache_scope", command.cache_scope, kLimits.scope_bytes);
}

void AdmissionControl::check(const RunCommand& command) const {
  check_tokens("tokens", command.tokens);
  check_media(command);
  check_vector(command, facts_.pooling, facts_.vocab_size);
  check_tokens("forced", command.forced);
  validate(command.budget, n_tokens_);
  check_bytes("tenant", command.tenant, kLimits.tenant_bytes);
  if (command.resume && !command.tokens.empty()) refuse("resume", "set together with tokens", "one of the two");
  if (command.position) check_at_least("position", *command.position, 0);
  if (command.base) check_at_least("base", *command.base, 0);
  if (command.sampling) validate(*command.sampling, n_tokens_);
  check_range("sparse_prefill.keep", command.sparse.keep, 1, kKeepAll);
  check_range("sparse_prefill.backbone", command.sparse.backbone, 0, kKeepAll);
  if (command.sparse.policy != SparsePolicy::dense && !options_.sparse_prefill) {
    refuse("sparse_prefill", "asked for", "nothing: the engine was made without it");
  }
  check_range("speculation.max_draft_tokens", command.max_draft_tokens, 0, kLimits.draft_tokens);
  check_limits(command.limits);
  check_returns(command.returns);
  if (!command.allowed.empty()) validate_mask(command.allowed, facts_.vocab_size, n_tokens_, "allowed_token_mask");
  const int n_states = options_.n_state_slots > 0 ? options_.n_state_slots - 1 : std::numeric_limits<int>::max();
  const int most = std::min({kLimits.run_sequences, options_.max_running, n_states});
  if (std::cmp_greater_equal(command.siblings.size(), most)) {
    refuse("num_sequences", std::to_string(1 + command.siblings.size()), "at most " + std::to_string(most));
  }
  check_context(command);
  check_blocks(command);
}

void AdmissionControl::check(const MaskCommand& command) const {
  check_at_least("output", command.output, 0);
  if (!command.end) validate_mask(command.allowed, facts_.vocab_size, n_tokens_, "mask");
}

void AdmissionControl::check(const DraftCommand& command) const {
  check_at_least("output", command.output, 0);
  if (std::cmp_greater(command.tokens.size(), kLimits.constrained_draft_tokens)) {
    refuse("tokens", std::to_string(command.tokens.size()) + " guesses",
           "at most " + std::to_string(kLimits.constrained_draft_tokens));
  }
  check_tokens("tokens", command.tokens);
}

void AdmissionControl::check(const EndCommand& command) const {
  if (command.n_outputs) check_at_least("n_outputs", *command.n_outputs, 0);
}

void AdmissionControl::check(const ForkCommand& command) const {
  if (command.position) check_at_least("position", *command.position, 0);
}

void AdmissionControl::check(const TruncateCommand& command) const {
  check_at_least("position", command.position, 0);
}

void AdmissionControl::check(const ProfileCommand& command) const {
  check_range("steps", command.n_steps, 0, kLimits.profile_steps);
}

void AdmissionControl::check_limits(const RunLimits& limits) const {
  check_at_least("max_tokens", limits.max_outputs, -1);
  check_at_least("min_tokens", limits.min_outputs, 0);
  if (limits.max_outputs >= 0 && limits.min_outputs > limits.max_outputs) {
    refuse("min_tokens", std::to_string(limits.min_outputs),
           "at most max_tokens, " + std::to_string(limits.max_outputs));
  }
  if (std::cmp_greater(limits.stop_tokens.size(), kLimits.stop_tokens)) {
    refuse("stop.token_ids", std::to_string(limits.stop_tokens.size()) + " ids",
           "at most " + std::to_string(kLimits.stop_tokens));
  }
  check_tokens("stop.token_ids", limits.stop_tokens);
  check_tokens("eos_tokens", limits.eos_tokens);
  if (!std::ranges::is_sorted(limits.stop_tokens)) refuse("stop.token_ids", "not sorted", "ascending ids");
  if (!std::ranges::is_sorted(limits.eos_tokens)) refuse("eos_tokens", "not sorted", "ascending ids");
}

void AdmissionControl::check_returns(const RunReturns& returns) const {
  const int most = std::min(options_.max_candidates, facts_.vocab_size);
  for (const std::int32_t n : {returns.n_candidates, returns.n_score_candidates}) {
    check_range("top_logprobs", n, 0, most);
  }
}

void AdmissionControl::check_context(const RunCommand& command) const {
  const auto n_tokens = static_cast<std::int64_t>(command.tokens.size());
  const bool is_whole = command.returns.vector && facts_.pooling.needs_whole_texts;
  const int most = is_whole ? std::min(options_.max_context, options_.step_tokens) : options_.max_context;
  require_context(n_tokens, command.limits, most);
}

// A single sequence always fits after some wait, since the pool holds a whole context. Several siblings may never fit.
void AdmissionControl::check_blocks(const RunCommand& command) const {
  const auto n_tokens = static_cast<int>(command.tokens.size());
  const std::int64_t last = std::int64_t{n_tokens} + std::max(command.limits.max_outputs - 1, 0);
  const int end = static_cast<int>(std::min<std::int64_t>(options_.max_context, last));
  const int needed = group_blocks(facts_.block_tokens, n_tokens, end, 1 + static_cast<int>(command.siblings.size()));
  if (command.siblings.empty() || needed <= options_.n_blocks) return;
  // The service reads and removes "total". It advises no retry of a request that can never fit.
  throw ResourceExhausted(
      Reason::KV_FULL,
      "the request needs " + std::to_string(needed) + " blocks, the cache has " + std::to_string(options_.n_blocks),
      {{"needed", std::to_string(needed)},
       {"available", std::to_string(options_.n_blocks)},
       {"total", std::to_string(options_.n_blocks)}});
}

// The parts of each medium are there, in order; their spans do not overlap, and their cells have the placeholder.
void AdmissionControl::check_media(const RunCommand& command) const {
  if (command.media.empty()) return;
  if (!facts_.media) refuse("media", std::to_string(command.media.size()) + " spans", "none: the model takes no media");
  int end = 0, n_left = 0;
  for (std::size_t i = 0; i < command.media.size(); ++i) {
    const MediaSpan& span = command.media[i];
    const std::string field = "media[" + std::to_string(i) + "]";
    const bool begins = n_left == 0;
    const bool is_next = begins
                             ? span.part == 0
                             : span.media == command.media[i - 1].media && span.part == command.media[i - 1].part + 1;
    if (span.media == nullptr || span.media->parts.empty() || !is_next) {
      refuse(field + ".part", std::to_string(span.part), "the parts of each medium in order");
    }
    n_left = static_cast<int>(span.media->parts.size()) - span.part - 1;
    check_span(field, span, end, command.tokens);
    end = span.end();
  }
  if (n_left > 0) refuse("media", std::to_string(n_left) + " parts less", "every part of each medium");
}

void AdmissionControl::check_span(const std::string& field, const MediaSpan& span, int least,
                                  std::span<const std::int32_t> tokens) const {
  const bool is_atomic = facts_.media->max_atomic_cells > 0;
  if (span.is_atomic != is_atomic) {
    refuse(field + ".is_atomic", span.is_atomic ? "true" : "false",
           is_atomic ? "true, as the model reads them" : "false, as the model reads them");
  }
  check_range(field + ".n_cells", span.n_cells, 1, is_atomic ? facts_.media->max_atomic_cells : facts_.media->max_rows);
  const int n_rows = span.media->parts[static_cast<std::size_t>(span.part)].n_rows;
  if (span.n_cells != n_rows) {
    refuse(field + ".n_cells", std::to_string(span.n_cells), "the rows of the part, " + std::to_string(n_rows));
  }
  check_range(field + ".first", span.first, least, static_cast<int>(tokens.size()) - span.n_cells);
  check_range(field + ".n_positions", span.n_positions, 1, span.n_cells);
  const bool has_grid = span.grid[0] > 0 && span.grid[1] > 0 && std::int64_t{span.grid[0]} * span.grid[1] >= n_rows;
  if (!has_grid && (span.grid != std::array{0, 0} || span.n_positions != span.n_cells)) {
    refuse(field + ".grid", std::to_string(span.grid[0]) + " x " + std::to_string(span.grid[1]),
           "rows and columns of its cells, or 0 and a position for each cell");
  }
  const auto cells = tokens.subspan(static_cast<std::size_t>(span.first), static_cast<std::size_t>(span.n_cells));
  if (!std::ranges::all_of(cells, [this](std::int32_t token) { return token == facts_.media->placeholder; })) {
    refuse(field, "other tokens in its cells", "the placeholder, " + std::to_string(facts_.media->placeholder));
  }
}

void AdmissionControl::check_tokens(const std::string& field, std::span<const std::int32_t> tokens) const {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < n_tokens_) continue;
    refuse(field + "[" + std::to_string(i) + "]", std::to_string(tokens[i]),
           "a token id below " + std::to_string(n_tokens_));
  }
}

}  // namespace imp
