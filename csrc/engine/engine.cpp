// The engine's thread around its loop.
#include "engine/engine.h"

#include <atomic>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/door.h"
#include "engine/loop.h"
#include "engine/mailbox.h"

namespace imp {

namespace {

constexpr const char* kStopped = "the engine has stopped after an error of its own or of its device";

std::int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const EngineOptions& validated(const EngineOptions& options, const ForwardPass& forward) {
  validate(options, forward);
  return options;
}

}  // namespace

struct Engine::Thread {
  Thread(Backend& backend, ForwardPass& forward, const EngineOptions& options, Clock given)
      : clock(given ? std::move(given) : Clock(steady_now)),
        secret(options.cache_secret.value_or(random_secret())),
        door(validated(options, forward), {.vocab_size = forward.vocab_size(),
                                           .block_tokens = forward.kv_geometry(options.n_blocks).block_tokens,
                                           .secret = secret}),
        loop(backend, forward, options, secret, door, clock),
        mailbox(options.max_queued_events, clock),
        cpu(options.cpu) {
    mailbox.publish(loop.events(), loop.stats());
    try {
      thread = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      throw ResourceExhausted(Reason::NO_MEMORY,
                              std::string("threads: the engine's own, the system refused it: ") + error.what(),
                              {{"needed", "1"}, {"available", "0"}});
    }
  }

  ~Thread() {
    mailbox.stop();
    thread.join();
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  void work() {
    std::vector<Accepted> commands;
    bool idle = true;
    pin();
    for (;;) {
      const Mailbox::Wake wake = mailbox.take(commands, idle);
      if (wake == Mailbox::Wake::stopped) return;
      take(commands);
      // What came while the events were full waits for its turn.
      const bool is_done = wake == Mailbox::Wake::go_on && !turn();
      idle = publish() && is_done;
    }
  }

  void take(std::vector<Accepted>& commands) noexcept {
    try {
      for (Accepted& command : commands) loop.take(std::move(command));
    } catch (...) {
      stop(no_memory);  // not even the failure of a command could be told
    }
  }

  // False where there was no memory for it: the events are kept, and published after the next turn.
  bool publish() noexcept {
    try {
      mailbox.publish(loop.events(), loop.stats());
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void pin() {
    if (!cpu) return;
    try {
      pin_this_thread(*cpu);
    } catch (const Error& error) {
      stop(error);
    }
  }

  void stop(const Error& error) noexcept {
    device_broke = error.reason() == Reason::DEVICE_FAULT;
    broken = true;
    loop.stop(error);
  }

  // What every command gets from then on, from any thread.
  void require_whole() const {
    if (!broken) return;
    if (device_broke) throw device_stopped;
    throw stopped;
  }

  // An error that escapes a turn is the engine's own: what it holds can no longer be trusted.
  bool turn() noexcept {
    if (broken) {
      // Runs that were on their way end too.
      loop.stop(device_broke ? static_cast<const Error&>(device_stopped) : stopped);
      return false;
    }
    try {
      return loop.turn();
    } catch (const Error& error) {
      stop(error);
    } catch (const std::bad_alloc&) {
      stop(no_memory);
    } catch (const std::exception& error) {
      stop_for(error);
    }
    return false;
  }

  void stop_for(const std::exception& error) noexcept {
    try {
      stop(InternalError(Reason::BUG, error.what()));
    } catch (const std::bad_alloc&) {
      stop(no_memory);
    }
  }

  // Made while there is memory; telling each run of it may still find none.
  const DeviceError device_stopped{Reason::DEVICE_FAULT, kStopped};
  const InternalError stopped{Reason::BUG, kStopped};
  const ResourceExhausted no_memory{Reason::NO_MEMORY, "an allocation failed inside a step: the engine has stopped"};
  const Clock clock;
  const HashSecret secret;
  Door door;
  Loop loop;
  Mailbox mailbox;
  const std::optional<int> cpu;
  // Set before `broken`, and read after it.
  std::atomic<bool> device_broke = false;
  std::atomic<bool> broken = false;
  std::thread thread;
};

Engine::Engine(Backend& backend, ForwardPass& forward, const EngineOptions& options, Clock clock)
    : thread_(std::make_unique<Thread>(backend, forward, options, std::move(clock))) {}

Engine::~Engine() = default;

void Engine::submit(Command command) {
  std::vector<Command> commands;
  commands.push_back(std::move(command));
  submit(std::move(commands));
}

void Engine::submit(std::vector<Command> commands) {
  thread_->require_whole();
  std::vector<Accepted> accepted;
  accepted.reserve(commands.size());
  try {
    for (Command& command : commands) {
      accepted.push_back(thread_->door.admit(std::move(command)));
      accepted.back().taken_ns = thread_->clock();
    }
    thread_->mailbox.put(std::move(accepted));
  } catch (...) {
    for (const Accepted& counted : accepted) thread_->door.withdraw(counted);
    throw;
  }
}

void Engine::hold() {
  thread_->mailbox.hold();
}

void Engine::let_go() {
  thread_->mailbox.let_go();
}

void Engine::drain_events(std::vector<Event>& out) {
  thread_->mailbox.drain(out);
}

int Engine::event_descriptor() const noexcept {
  return thread_->mailbox.event_descriptor();
}

EngineStats Engine::stats() const {
  EngineStats stats = thread_->mailbox.stats();
  stats.queued = thread_->door.waiting();
  stats.waiting_tokens = thread_->door.waiting_tokens();
  return stats;
}

}  // namespace imp
