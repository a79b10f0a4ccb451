// Runs the engine's thread with callers of every kind under the thread and address sanitizers: several threads submit
// random commands, one drains events, one reads the stats. Fails if a run does not end exactly once, or if a sequence
// still holds a block after all are closed.
#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/run/engine.h"
#include "native/script/script_backend.h"
#include "native/script/script_model.h"

namespace {

using namespace imp;

constexpr int kVocabulary = 16;
constexpr int kBlocks = 28;  // fewer than eight runs need, so that some are preempted
constexpr int kMaxContext = 256;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "engine_threads: %s\n", what.c_str());
  std::exit(1);
}

EngineOptions engine_options() {
  EngineOptions options;
  options.n_blocks = kBlocks;
  options.max_context = kMaxContext;
  options.max_running = 8;
  options.step_tokens = 32;
  options.prefill_chunk = 8;
  options.max_waiting = 64;
  options.max_queued_events = 256;
  return options;
}

// The endings of the runs, by ticket.
class Endings {
 public:
  void expect(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    expected_.insert(ticket);
  }
  void withdraw(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    expected_.erase(ticket);
  }
  void record(const Event& event) {
    const auto* finished = std::get_if<FinishedEvent>(&event);
    const auto* failed = std::get_if<FailedEvent>(&event);
    if (finished == nullptr && failed == nullptr) return;
    // A bug or a device fault is not a valid ending.
    if (failed != nullptr && (failed->reason == Reason::BUG || failed->reason == Reason::DEVICE_FAULT)) {
      fail("ticket " + std::to_string(failed->ticket) + ": " + failed->message);
    }
    const std::lock_guard lock(mutex_);
    n_tokens_ += finished != nullptr ? finished->n_outputs : 0;
    if (failed != nullptr) ++n_failed_[failed->reason];
    ++n_endings_[finished != nullptr ? finished->ticket : failed->ticket];
  }
  bool is_complete() const {
    const std::lock_guard lock(mutex_);
    for (const Ticket ticket : expected_) {
      const auto found = n_endings_.find(ticket);
      if (found == n_endings_.end()) return false;
      if (found->second != 1)
        fail("run " + std::to_string(ticket) + " ended " + std::to_string(found->second) + " times");
    }
    return true;
  }
  void report(const EngineStats& stats) const {
    const std::lock_guard lock(mutex_);
    std::printf("%zu runs ended once each: %lld tokens in %llu steps, %llu preemptions;", expected_.size(),
                static_cast<long long>(n_tokens_), static_cast<unsigned long long>(stats.n_steps),
                static_cast<unsigned long long>(stats.n_preemptions));
    for (const auto& [reason, n] : n_failed_) std::printf(" %s %d", std::string(row_of(reason).name).c_str(), n);
    std::printf("\n");
  }

 private:
  mutable std::mutex mutex_;
  std::set<Ticket> expected_;
  std::map<Ticket, int> n_endings_;
  std::map<Reason, int> n_failed_;
  std::int64_t n_tokens_ = 0;
};

// A caller with generations and one session. It ends them in every possible way.
class Caller {
 public:
  Caller(Engine& engine, Endings& endings, std::atomic<std::uint64_t>& ids, unsigned seed)
      : engine_(engine), endings_(endings), ids_(ids), random_(seed) {}

  void work(int n_rounds) {
    const SequenceId session = ids_++;
    submit(OpenCommand{.sequence = session, .kind = SequenceKind::session, .sampling = {}, .tenant = "t"});
    for (int i = 0; i < n_rounds; ++i) {
      if (below(3) == 0) {
        use(session);
      } else {
        generate();
      }
    }
    submit(CloseCommand{.ticket = ids_++, .sequence = session});
  }

 private:
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  std::vector<std::int32_t> tokens(int n) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(n));
    for (std::int32_t& token : out) token = below(kVocabulary);
    return out;
  }

  bool submit(Command command) { return submit_all({std::move(command)}); }

  // Returns false if the queue stays full; that is a valid answer.
  bool submit_all(const std::vector<Command>& commands) {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      try {
        engine_.submit(commands);
        return true;
      } catch (const ResourceExhausted&) {
        std::this_thread::yield();
      }
    }
    return false;
  }

  void generate() {
    const SequenceId sequence = ids_++;
    const Ticket ticket = ids_++;
    RunCommand run{.ticket = ticket, .sequence = sequence, .tokens = tokens(1 + below(60))};
    run.limits.max_outputs = below(40);
    OpenCommand open{.sequence = sequence, .sampling = {}, .priority = below(3), .tenant = below(2) ? "a" : "b"};
    open.sampling.seed = static_cast<std::uint64_t>(below(1000));
    endings_.expect(ticket);
    if (!submit_all({std::move(open), std::move(run)})) {
      endings_.withdraw(ticket);
      return;
    }
    switch (below(5)) {
      case 0:
        submit(EndCommand{.ticket = ticket, .sequence = sequence, .reason = EndReason::cancelled});
        break;
      case 1:
        submit(CloseCommand{.ticket = ids_++, .sequence = sequence});
        break;
      case 2:
        submit(PauseCommand{.ticket = ticket, .sequence = sequence, .paused = true});
        submit(PauseCommand{.ticket = ticket, .sequence = sequence, .paused = false});
        break;
      case 3:
        submit(EndCommand{.ticket = ticket, .sequence = sequence, .reason = EndReason::stop, .n_outputs = below(4)});
        break;
      default:
        break;
    }
  }

  void use(SequenceId session) {
    const Ticket ticket = ids_++;
    switch (below(4)) {
      case 0:
        submit(TruncateCommand{.ticket = ticket, .sequence = session, .position = 0});
        return;
      case 1: {
        const SequenceId copy = ids_++;
        submit(ForkCommand{.ticket = ticket, .sequence = session, .copy = copy});
        submit(CloseCommand{.ticket = ids_++, .sequence = copy});
        return;
      }
      default: {
        RunCommand run{.ticket = ticket, .sequence = session, .tokens = tokens(1 + below(20))};
        endings_.expect(ticket);
        if (!submit(std::move(run))) endings_.withdraw(ticket);
      }
    }
  }

  Engine& engine_;
  Endings& endings_;
  std::atomic<std::uint64_t>& ids_;
  std::mt19937 random_;
};

void drain_until(Engine& engine, Endings& endings, const std::atomic<bool>& is_over) {
  std::vector<Event> events;
  while (!is_over) {
    pollfd readable{.fd = engine.event_descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&readable, 1, 5);
    engine.drain_events(events);
    for (const Event& event : events) endings.record(event);
    events.clear();
  }
}

template <class Condition>
void wait_until(Condition holds, const char* what) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) fail(what);
    std::this_thread::yield();
  }
}

// is_ahead: the device starts a step before the host has read the previous one.
// has_state: the model has a recurrent state, and there are fewer slots than sequences that could run.
void run(int n_callers, int n_rounds, unsigned seed, bool is_ahead, bool has_state = false) {
  testing::Script script;
  script.state = has_state;
  script.vocab_size = kVocabulary;
  script.records = false;
  testing::ScriptBackend backend;
  backend.records = false;
  backend.ahead = is_ahead;
  testing::ScriptModel model(script, &backend.last_drawn);
  EngineOptions options = engine_options();
  options.n_state_slots = has_state ? 6 : 0;
  Engine engine(backend, model, options);
  Endings endings;
  std::atomic<std::uint64_t> ids = 1;
  std::atomic<bool> is_over = false;
  std::thread drain([&] { drain_until(engine, endings, is_over); });
  std::thread watch([&] {
    while (!is_over) {
      const EngineStats stats = engine.stats();
      if (stats.blocks_live + stats.blocks_cached + stats.blocks_free != kBlocks)
        fail("live, cached and free blocks are not all blocks");
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < n_callers; ++i) {
    callers.emplace_back([&, i] { Caller(engine, endings, ids, seed + static_cast<unsigned>(i)).work(n_rounds); });
  }
  for (std::thread& caller : callers) caller.join();
  wait_until([&] { return endings.is_complete(); }, "a run did not end");
  wait_until([&] { return engine.stats().blocks_live == 0; }, "blocks are held although all sequences are closed");
  is_over = true;
  drain.join();
  watch.join();
  const EngineStats stats = engine.stats();
  if (stats.running != 0 || stats.waiting != 0 || stats.sessions != 0) fail("something still runs");
  if (stats.states_held != 0) fail("states are held although all sequences are closed");
  if (!endings.is_complete()) fail("a run ended twice");
  if ((stats.n_steps_ahead > 0) != is_ahead) fail(is_ahead ? "no step started ahead" : "a step started ahead");
  endings.report(stats);
}

}  // namespace

int main(int n_arguments, char** arguments) {
  const int n_rounds = n_arguments > 1 ? std::atoi(arguments[1]) : 400;
  const unsigned seed = n_arguments > 2 ? static_cast<unsigned>(std::atoi(arguments[2])) : 1U;
  run(4, n_rounds, seed, false);
  run(4, n_rounds / 2, seed, true);
  run(4, n_rounds / 4, seed, false, true);
  run(4, n_rounds / 4, seed, true, true);
  // Destroys an engine while sequences run.
  for (unsigned i = 0; i < 8; ++i) {
    testing::Script script;
    script.records = false;
    testing::ScriptBackend backend;
    backend.ahead = i % 2 == 1;
    testing::ScriptModel model(script, &backend.last_drawn);
    Engine engine(backend, model, engine_options());
    Endings endings;
    std::atomic<std::uint64_t> ids = 1;
    Caller(engine, endings, ids, seed + i).work(20);
  }
  return 0;
}
