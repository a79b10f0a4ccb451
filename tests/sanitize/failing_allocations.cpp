// Every allocation of an engine fails in turn: at its start, at the door, in its thread. What is refused is told with a
// reason, and nothing of it stays. Where one fails and the next does not, who comes later is served; where all fail
// from then on, they may be told that the engine has ended.
#include <poll.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "bindings/testing_script_backend.h"
#include "bindings/testing_script_model.h"
#include "engine/engine.h"

namespace {

// Allocations to come until one fails; below 0: none does. `lasting`: all from that one on.
std::atomic<long> allocations_left = -1;
std::atomic<bool> lasting = false;
std::atomic<long> n_failed = 0;

void* allocate(std::size_t n_bytes, std::size_t alignment) {
  if (allocations_left.load() >= 0) {
    const long left = allocations_left.fetch_sub(1);
    if (left == 0 && lasting) allocations_left = 0;
    if (left == 0) {
      ++n_failed;
      throw std::bad_alloc();
    }
  }
  const std::size_t size = n_bytes == 0 ? 1 : n_bytes;
  void* found = alignment == 0 ? std::malloc(size)
                               : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}

}  // namespace

void* operator new(std::size_t n_bytes) {
  return allocate(n_bytes, 0);
}
void* operator new(std::size_t n_bytes, std::align_val_t alignment) {
  return allocate(n_bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

using namespace imp;

constexpr int kVocabulary = 64;
constexpr int kBlocks = 32;
constexpr int kPatienceMs = 20'000;
constexpr SequenceId kSession = 1, kCopy = 2, kLeader = 3, kCancelled = 6, kFresh = 7;

[[noreturn]] void fail(long nth, const std::string& what) {
  allocations_left = -1;
  std::fprintf(stderr, "failing_allocations: allocation %ld: %s\n", nth, what.c_str());
  std::exit(1);
}

struct Outcomes {
  long starts_refused = 0;
  long requests_refused = 0;
  long engines_ended = 0;
};

testing::Script script() {
  testing::Script script;
  script.vocab_size = kVocabulary;
  script.rule = testing::ScriptRule::counter;
  script.records = false;
  return script;
}

EngineOptions engine_options() {
  EngineOptions options;
  options.n_blocks = kBlocks;
  options.max_context = 256;
  options.max_running = 8;
  options.step_tokens = 32;
  options.prefill_chunk = 8;
  return options;
}

std::vector<std::int32_t> prompt(int n) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n), 7);
  return tokens;
}

std::vector<Command> generation(Ticket ticket, SequenceId sequence, int n_outputs, std::vector<SequenceId> siblings) {
  RunCommand run{.ticket = ticket, .sequence = sequence, .tokens = prompt(17)};
  run.limits.max_outputs = n_outputs;
  run.siblings = std::move(siblings);
  return {OpenCommand{.sequence = sequence, .sampling = {}}, std::move(run)};
}

// A request: what is submitted together, and the ticket of its answer; 0: there is none.
struct Request {
  std::vector<Command> commands;
  Ticket ticket = 0;
};

// Generations, one with siblings and one that is cancelled; a session that is run, forked, cut and closed.
std::vector<Request> requests() {
  const OpenCommand session{
      .sequence = kSession, .kind = SequenceKind::session, .sampling = {}, .tenant = "a tenant with a long name"};
  std::vector<Request> all;
  all.push_back({{session}});
  all.push_back({{RunCommand{.ticket = 10, .sequence = kSession, .tokens = prompt(20)}}, 10});
  all.push_back({generation(11, kLeader, 12, {4, 5}), 11});
  all.push_back({generation(12, kCancelled, 30, {})});
  all.push_back({{EndCommand{.ticket = 12, .sequence = kCancelled}}});
  all.push_back({{ForkCommand{.ticket = 13, .sequence = kSession, .copy = kCopy}}, 13});
  all.push_back({{RunCommand{.ticket = 14, .sequence = kCopy, .tokens = prompt(3)}}, 14});
  all.push_back({{TruncateCommand{.ticket = 15, .sequence = kSession, .position = 5}}, 15});
  all.push_back({{CloseCommand{.ticket = 16, .sequence = kCopy}}, 16});
  return all;
}

// One engine, of whose allocations the nth fails.
class Attempt {
 public:
  Attempt(long nth, Outcomes& outcomes) : nth_(nth), outcomes_(outcomes), model_(script()) {
    backend_.records = false;
    drained_.reserve(1024);
    events_.reserve(4096);
  }

  // False where none failed: each has had its turn.
  bool run(bool is_lasting) {
    std::vector<Request> all = requests();
    const EngineOptions options = engine_options();
    n_failed = 0;
    lasting = is_lasting;
    allocations_left = nth_;
    try {
      engine_.emplace(backend_, model_, options);
    } catch (const std::exception& error) {
      require_memory(error);
      ++outcomes_.starts_refused;
      return true;
    }
    for (Request& request : all) ask(request);
    allocations_left = -1;
    const bool failed = n_failed > 0;
    check_rest();
    return failed;
  }

 private:
  // An exception of ours names a reason; the allocation's own is known to every caller.
  void require_memory(const std::exception& error) {
    allocations_left = -1;
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool told = known != nullptr ? known->reason() == Reason::NO_MEMORY || has_ended()
                                       : dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    if (!told) fail(nth_, error.what());
  }

  bool has_ended() const { return engine_ && engine_->stats().stopped; }

  void ask(Request& request) {
    const long left = allocations_left;
    try {
      engine_->submit(std::move(request.commands));
    } catch (const std::exception& error) {
      require_memory(error);
      if (lasting) allocations_left = left < 0 ? -1 : 0;
      ++outcomes_.requests_refused;
      return;
    }
    if (request.ticket != 0) await_answer(request.ticket);
  }

  void await_answer(Ticket ticket) {
    for (int waited = 0; !is_answered(ticket) && !has_ended(); ++waited) {
      if (waited > kPatienceMs) fail(nth_, "no answer to ticket " + std::to_string(ticket));
      drain(1);
    }
  }

  void drain(int timeout_ms) {
    pollfd readable{.fd = engine_->event_descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&readable, 1, timeout_ms);
    engine_->drain_events(drained_);
    for (Event& event : drained_) {
      if (const auto* failed = std::get_if<FailedEvent>(&event)) {
        if (failed->reason == Reason::NO_MEMORY) ++outcomes_.requests_refused;
      }
      events_.push_back(std::move(event));
    }
  }

  bool is_answered(Ticket ticket) const {
    for (const Event& event : events_) {
      const auto* finished = std::get_if<FinishedEvent>(&event);
      const auto* failed = std::get_if<FailedEvent>(&event);
      const auto* done = std::get_if<DoneEvent>(&event);
      if ((finished != nullptr && finished->ticket == ticket) || (failed != nullptr && failed->ticket == ticket) ||
          (done != nullptr && done->ticket == ticket)) {
        return true;
      }
    }
    return false;
  }

  // With memory again: an engine that has not ended serves, and holds nothing of what was refused.
  void check_rest() {
    if (has_ended()) {
      ++outcomes_.engines_ended;
      return;
    }
    Request closing{
        {CloseCommand{.ticket = 20, .sequence = kSession}, CloseCommand{.ticket = 21, .sequence = kCopy},
         CloseCommand{.ticket = 22, .sequence = kLeader}, CloseCommand{.ticket = 23, .sequence = kCancelled}},
        23};
    ask(closing);
    Request fresh{generation(30, kFresh, 5, {}), 30};
    ask(fresh);
    std::string outputs;
    for (const Event& event : events_) {
      const auto* token = std::get_if<TokenEvent>(&event);
      if (token != nullptr && token->ticket == 30) outputs += std::to_string(token->token) + " ";
    }
    if (has_ended()) {  // known only now: to say so needed memory
      ++outcomes_.engines_ended;
      return;
    }
    if (outputs != "8 9 10 11 12 ") fail(nth_, "a fresh request drew " + outputs);
    const EngineStats stats = engine_->stats();
    const int held = stats.running + stats.waiting + stats.queued + stats.sessions + stats.blocks_live;
    if (held != 0 || stats.waiting_tokens != 0 || stats.blocks_cached + stats.blocks_free != kBlocks) {
      fail(nth_, std::to_string(stats.running) + " run, " + std::to_string(stats.waiting) + " wait, " +
                     std::to_string(stats.queued) + " queued, " + std::to_string(stats.sessions) + " sessions, " +
                     std::to_string(stats.blocks_live) + " blocks held");
    }
  }

  const long nth_;
  Outcomes& outcomes_;
  testing::ScriptBackend backend_;
  testing::ScriptModel model_;
  std::optional<Engine> engine_;
  std::vector<Event> drained_;
  std::vector<Event> events_;
};

void sweep(bool is_lasting) {
  Outcomes outcomes;
  long nth = 0;
  while (Attempt(nth, outcomes).run(is_lasting)) ++nth;
  std::printf("%ld allocations failed %s: %ld starts and %ld requests refused, %ld engines ended\n", nth,
              is_lasting ? "and all after them" : "once each", outcomes.starts_refused, outcomes.requests_refused,
              outcomes.engines_ended);
  if (outcomes.starts_refused == 0 || outcomes.requests_refused == 0) fail(nth, "nothing was refused");
  if (!is_lasting && outcomes.engines_ended > 0) fail(nth, "one allocation ended an engine");
}

}  // namespace

int main() {
  sweep(false);
  sweep(true);
  return 0;
}
