// Lets every allocation of an engine fail in turn: at its start, in admission control and in its thread, in several
// situations. The engine must refuse with a reason, and must release what a refused request held. If a single
// allocation fails, at most one request may end. If all further allocations fail, the engine itself may end.
#include <poll.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "engine/run/engine.h"
#include "native/script/script_backend.h"
#include "native/script/script_model.h"

namespace {

// The number of allocations that succeed before one fails; negative: none fails. `lasting`: all later ones fail too.
std::atomic<long> allocations_left = -1;
std::atomic<bool> lasting = false;
std::atomic<long> n_failed = 0;
// False while this program allocates memory for itself.
thread_local bool is_engines = true;

class Engines {
 public:
  Engines() { is_engines = true; }
  ~Engines() { is_engines = false; }
};

void* allocate(std::size_t n_bytes, std::size_t alignment) {
  if (is_engines && allocations_left.load() >= 0) {
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
// For callers that continue without the memory.
void* operator new(std::size_t n_bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(n_bytes, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
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
constexpr int kPatienceMs = 60'000;
constexpr SequenceId kSession = 1, kCopy = 2, kLeader = 3, kCancelled = 6, kFresh = 7, kOther = 8, kSecond = 20,
                     kThird = 21, kLate = 22, kUnknown = 99;
constexpr Ticket kFreshTicket = 200;
// All sequences that a situation may leave open.
constexpr SequenceId kClosed[] = {kSession, kCopy, kLeader, kOther, kSecond, kThird, kLate};

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

testing::Script script(bool has_state) {
  testing::Script script;
  script.state = has_state;
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

std::vector<Command> generation(Ticket ticket, SequenceId sequence, int n_outputs,
                                std::vector<SequenceId> siblings = {}) {
  RunCommand run{.ticket = ticket, .sequence = sequence, .tokens = prompt(17)};
  run.limits.max_outputs = n_outputs;
  run.siblings = std::move(siblings);
  return {OpenCommand{.sequence = sequence, .sampling = {}}, std::move(run)};
}

OpenCommand session(SequenceId sequence) {
  return {.sequence = sequence, .kind = SequenceKind::session, .sampling = {}, .tenant = "a tenant with a long name"};
}

// Options with a list, whose copy needs memory.
SamplingOptions biased() {
  SamplingOptions options;
  options.logit_bias = {{.token = 3, .bias = -1.0F}};
  return options;
}

// Commands that are submitted together, and the ticket of their answer; 0: there is none. If `waits`, the next request
// is submitted after the answer.
struct Request {
  std::vector<Command> commands;
  Ticket ticket = 0;
  bool waits = true;
};

struct Situation {
  const char* name;
  EngineOptions options;
  std::vector<Request> (*requests)();
  bool is_ahead = false;  // the device starts a step before the host has read the previous one
};

// Generations, one with siblings and one that is cancelled; a session that runs, and is forked, truncated and closed.
std::vector<Request> everyday() {
  std::vector<Request> all;
  all.push_back({{session(kSession)}});
  all.push_back({{RunCommand{.ticket = 10, .sequence = kSession, .tokens = prompt(20)}}, 10});
  all.push_back({generation(11, kLeader, 12, {4, 5}), 11});
  all.push_back({generation(12, kCancelled, 200), 12, false});
  all.push_back({{EndCommand{.ticket = 12, .sequence = kCancelled}}});
  all.push_back({{ForkCommand{.ticket = 13, .sequence = kSession, .copy = kCopy}}, 13});
  all.push_back({{RunCommand{.ticket = 14, .sequence = kCopy, .tokens = prompt(3)}}, 14});
  all.push_back({{TruncateCommand{.ticket = 15, .sequence = kSession, .position = 5}}, 15});
  all.push_back({{CloseCommand{.ticket = 16, .sequence = kCopy}}, 16});
  return all;
}

// More tokens than the cache holds: generations that are preempted, sessions that find the cache full, and siblings
// that do not fit because idle sessions hold blocks. The options decide whether idle sessions are evicted.
std::vector<Request> pressure() {
  std::vector<Request> all;
  for (const SequenceId name : {kSession, kCopy}) {
    all.push_back({{session(name)}});
    all.push_back({{RunCommand{.ticket = 10 + name, .sequence = name, .tokens = prompt(200)}}, 10 + name});
  }
  all.push_back({generation(20, kLeader, 100, {4, 5}), 20});
  const SequenceId growing[] = {kOther, kSecond, kThird};
  for (const SequenceId name : growing) all.push_back({generation(30 + name, name, 230), 30 + name, false});
  all.push_back({{RunCommand{.ticket = 60, .sequence = kCopy, .tokens = prompt(40), .sampling = biased()}}, 60});
  all.push_back({{session(kLate), RunCommand{.ticket = 61, .sequence = kLate, .tokens = prompt(220)}}, 61});
  for (const SequenceId name : {kLate, kSession, kCopy}) {
    all.push_back({{CloseCommand{.ticket = 62 + name, .sequence = name}}, 62 + name});
  }
  return all;
}

RunCommand constrained(Ticket ticket, SequenceId sequence, int n_outputs) {
  RunCommand run{.ticket = ticket, .sequence = sequence, .tokens = prompt(20)};
  run.limits.max_outputs = n_outputs;
  run.constrained = true;
  return run;
}

MaskCommand mask(Ticket ticket, SequenceId sequence, int output) {
  return {.ticket = ticket, .sequence = sequence, .output = output, .allowed = {0xffffffffU, 0xffffffffU}};
}

// Scores, candidates, logits and masks; a profile of these steps; and invalid commands.
std::vector<Request> extras() {
  std::vector<Request> all;
  all.push_back({{ProfileCommand{.ticket = 10, .n_steps = 3}}, 10, false});
  all.push_back({{session(kSession)}});
  RunCommand scored{.ticket = 11, .sequence = kSession, .tokens = prompt(40)};
  scored.returns = {.logprobs = true, .n_candidates = 3, .logits = true, .scores = true, .n_score_candidates = 2};
  all.push_back({{scored}, 11});
  scored.ticket = 12;
  scored.sampling = biased();
  all.push_back({{scored}, 12});
  all.push_back({{OpenCommand{.sequence = kOther, .sampling = {}}, constrained(13, kOther, 2)}, 13, false});
  for (const int output : {0, 1}) all.push_back({{mask(13, kOther, output)}});
  all.push_back({{OpenCommand{.sequence = kSecond, .sampling = {}}, constrained(14, kSecond, 9)}, 14, false});
  all.push_back({{EndCommand{.ticket = 14, .sequence = kSecond, .reason = EndReason::stop, .n_outputs = 7}}});
  all.push_back({{RunCommand{.ticket = 15, .sequence = kUnknown, .tokens = prompt(2)}}, 15});
  all.push_back({{RunCommand{.ticket = 16, .sequence = kSession, .tokens = prompt(2), .position = 3}}, 16});
  all.push_back({{ForkCommand{.ticket = 17, .sequence = kSession, .copy = kCopy, .position = 900}}, 17});
  all.push_back({{TruncateCommand{.ticket = 18, .sequence = kSession, .position = 900}}, 18});
  all.push_back({{ProfileCommand{.ticket = 19, .n_steps = 900}}, 19, false});
  all.push_back({generation(20, kLeader, 12), 20});
  all.push_back({{ProfileCommand{.ticket = 21}}});
  return all;
}

std::vector<Situation> situations() {
  EngineOptions evicting = engine_options();
  evicting.evict_sessions = true;
  EngineOptions states = engine_options();
  states.n_state_slots = 9;
  return {{"a usual load", engine_options(), everyday},
          {"a full cache", engine_options(), pressure},
          {"a full cache, sessions evicted", evicting, pressure},
          {"scores, masks, profiles", engine_options(), extras},
          {"a usual load, steps that start ahead", engine_options(), everyday, true},
          {"a usual load of a model with a recurrent state", states, everyday}};
}

// One engine whose nth allocation fails.
class Attempt {
 public:
  Attempt(const Situation& situation, long nth, Outcomes& outcomes)
      : situation_(situation),
        nth_(nth),
        outcomes_(outcomes),
        model_(script(situation.options.n_state_slots > 0), &backend_.last_drawn) {
    backend_.records = false;
    backend_.ahead = situation.is_ahead;
    drained_.reserve(1024);
  }

  // Returns false if no allocation failed, because all have had their turn.
  bool run(bool is_lasting) {
    const std::vector<Request> all = situation_.requests();
    n_failed = 0;
    lasting = is_lasting;
    allocations_left = nth_;
    try {
      const Engines counted;
      engine_.emplace(backend_, model_, situation_.options);
    } catch (const std::exception& error) {
      require_memory(error);
      ++outcomes_.starts_refused;
      return true;
    }
    for (const Request& request : all) ask(request);
    allocations_left = -1;
    const bool failed = n_failed > 0;
    // If all allocations failed, a request may wait for a command that was never submitted.
    if (is_lasting) close_all();
    for (const Ticket ticket : unanswered_) await_answer(ticket);
    check_rest();
    if (!is_lasting && ended_.size() > 1) fail(nth_, std::to_string(ended_.size()) + " requests ended");
    return failed;
  }

 private:
  // An exception of imp must have a reason; std::bad_alloc is the only other one allowed.
  void require_memory(const std::exception& error) {
    allocations_left = -1;
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool valid = known != nullptr ? known->reason() == Reason::NO_MEMORY || has_ended()
                                        : dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    if (!valid) fail(nth_, error.what());
  }

  bool has_ended() const { return engine_ && engine_->stats().stopped; }

  void submit(std::vector<Command> commands) {
    const Engines counted;
    engine_->submit(std::move(commands));
  }

  // Whether the commands release something, or others wait for them: a caller then submits them again.
  static bool is_repeated(const std::vector<Command>& commands) {
    const Command& first = commands.front();
    const auto* profile = std::get_if<ProfileCommand>(&first);
    return std::holds_alternative<EndCommand>(first) || std::holds_alternative<CloseCommand>(first) ||
           std::holds_alternative<MaskCommand>(first) || (profile != nullptr && profile->n_steps == 0);
  }

  void submit_again(const std::vector<Command>& commands) {
    try {
      submit(commands);
    } catch (const std::exception& error) {
      fail(nth_, std::string("submitted again: ") + error.what());
    }
  }

  void ask(const Request& request) {
    const long left = allocations_left;
    try {
      submit(request.commands);
    } catch (const std::exception& error) {
      require_memory(error);
      if (lasting) allocations_left = left < 0 ? -1 : 0;
      ++outcomes_.requests_refused;
      if (lasting || !is_repeated(request.commands)) {
        ended_.insert(request.ticket);
        return;
      }
      submit_again(request.commands);
    }
    if (request.ticket == 0) return;
    unanswered_.insert(request.ticket);
    if (request.waits) await_answer(request.ticket);
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
    {
      const Engines counted;
      engine_->drain_events(drained_);
    }
    for (Event& event : drained_) {
      if (const auto* failed = std::get_if<FailedEvent>(&event)) {
        if (failed->reason == Reason::NO_MEMORY) {
          ++outcomes_.requests_refused;
          ended_.insert(failed->ticket);
        }
      }
      events_.push_back(std::move(event));
    }
  }

  bool is_answered(Ticket ticket) const {
    for (const Event& event : events_) {
      const auto* finished = std::get_if<FinishedEvent>(&event);
      const auto* failed = std::get_if<FailedEvent>(&event);
      const auto* done = std::get_if<DoneEvent>(&event);
      const auto* profile = std::get_if<ProfileEvent>(&event);
      if ((finished != nullptr && finished->ticket == ticket) || (failed != nullptr && failed->ticket == ticket) ||
          (done != nullptr && done->ticket == ticket) || (profile != nullptr && profile->ticket == ticket)) {
        return true;
      }
    }
    return false;
  }

  void close_all() {
    if (has_ended()) return;
    ask({{ProfileCommand{.ticket = ++last_ticket_}}});
    for (const SequenceId name : kClosed) {
      ++last_ticket_;
      ask({{CloseCommand{.ticket = last_ticket_, .sequence = name}}, last_ticket_});
    }
  }

  // With memory available again: an engine that has not ended must serve, and must hold nothing for refused requests.
  void check_rest() {
    if (has_ended()) {
      ++outcomes_.engines_ended;
      return;
    }
    close_all();
    ask({generation(kFreshTicket, kFresh, 5), kFreshTicket});
    std::string outputs;
    for (const Event& event : events_) {
      const auto* token = std::get_if<TokenEvent>(&event);
      if (token != nullptr && token->ticket == kFreshTicket) outputs += std::to_string(token->token) + " ";
    }
    if (has_ended()) {  // the engine may notice only now, because reporting it needed memory
      ++outcomes_.engines_ended;
      return;
    }
    if (outputs != "8 9 10 11 12 ") fail(nth_, "a fresh request drew " + outputs);
    const EngineStats stats = engine_->stats();
    const int held =
        stats.running + stats.waiting + stats.queued + stats.sessions + stats.blocks_live + stats.states_held;
    if (held != 0 || stats.waiting_tokens != 0 || stats.blocks_cached + stats.blocks_free != kBlocks) {
      fail(nth_, std::to_string(stats.running) + " run, " + std::to_string(stats.waiting) + " wait, " +
                     std::to_string(stats.queued) + " queued, " + std::to_string(stats.sessions) + " sessions, " +
                     std::to_string(stats.blocks_live) + " blocks held");
    }
  }

  const Situation& situation_;
  const long nth_;
  Outcomes& outcomes_;
  testing::ScriptBackend backend_;
  testing::ScriptModel model_;
  std::optional<Engine> engine_;
  std::vector<Event> drained_;
  std::vector<Event> events_;
  Ticket last_ticket_ = 100;
  std::set<Ticket> unanswered_;
  std::set<Ticket> ended_;  // requests that ended because an allocation failed
};

void sweep(const Situation& situation, bool is_lasting) {
  Outcomes outcomes;
  long nth = 0;
  while (Attempt(situation, nth, outcomes).run(is_lasting)) ++nth;
  std::printf("%s: %ld allocations failed %s: %ld starts and %ld requests refused, %ld engines ended\n", situation.name,
              nth, is_lasting ? "and all after them" : "once each", outcomes.starts_refused, outcomes.requests_refused,
              outcomes.engines_ended);
  if (outcomes.starts_refused == 0 || outcomes.requests_refused == 0) fail(nth, "nothing was refused");
  if (!is_lasting && outcomes.engines_ended > 0) fail(nth, "one allocation ended an engine");
}

}  // namespace

int main() {
  is_engines = false;
  for (const Situation& situation : situations()) {
    sweep(situation, false);
    sweep(situation, true);
  }
  return 0;
}
