// The engine's thread, which runs the loop.
#include "engine/run/engine.h"

#include <atomic>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/run/loop.h"
#include "engine/run/mailbox.h"
#include "engine/run/validate_options.h"
#include "engine/schedule/admission_control.h"

namespace imp {

namespace {

constexpr const char* kStopped = "the engine has stopped after an internal error or a device error";

const EngineOptions& validated(const EngineOptions& options, const ForwardPass& forward, const MediaEncoder* encoder) {
  validate(options, forward, encoder);
  return options;
}

}  // namespace

struct Engine::Thread {
  Thread(Backend& backend, ForwardPass& forward, const EngineOptions& options, Clock given, Drafters drafters,
         std::unique_ptr<PromptScorer> scorer, MediaEncoder* encoder)
      : clock(given ? std::move(given) : Clock(steady_now)),
        secret(options.cache_secret.value_or(random_secret())),
        admission(validated(options, forward, encoder), admission_facts(options, forward, encoder, secret)),
        loop(backend, forward, options, secret, admission, clock, std::move(drafters), std::move(scorer), encoder),
        mailbox(options.max_queued_events, clock),
        cpu(options.cpu) {
    mailbox.publish(loop.events(), loop.stats());
    try {
      thread = std::thread([this] { work(); });
    } catch (const std::system_error& error) {
      throw ResourceExhausted(Reason::NO_MEMORY,
                              std::string("threads: the system did not start the engine's thread: ") + error.what(),
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
    std::vector<AcceptedCommand> commands;
    bool idle = true;
    pin();
    for (;;) {
      const Mailbox::Wake wake = mailbox.take(commands, idle);
      if (wake == Mailbox::Wake::stopped) return;
      take(commands);
      // If the event queue is full, commands are taken but no step runs.
      const bool is_done = wake == Mailbox::Wake::run && !iterate();
      idle = publish() && is_done;
    }
  }

  void take(std::vector<AcceptedCommand>& commands) noexcept {
    try {
      for (AcceptedCommand& command : commands) loop.take(std::move(command));
    } catch (...) {
      stop(no_memory);  // there was no memory to report a failed command
    }
  }

  // Returns false if there was no memory: the events stay here and are published after the next iteration.
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

  // Throws the error that every command gets after the engine has stopped.
  void require_running() const {
    if (!broken) return;
    if (device_broke) throw device_stopped;
    throw stopped;
  }

  // An error that escapes an iteration is internal: the state of the engine can no longer be trusted.
  bool iterate() noexcept {
    if (broken) {
      // Ends the runs of commands that were still queued.
      loop.stop(device_broke ? static_cast<const Error&>(device_stopped) : stopped);
      return false;
    }
    try {
      return loop.iterate();
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

  // The errors are made in advance: later there may be no memory for them.
  const DeviceError device_stopped{Reason::DEVICE_FAULT, kStopped};
  const InternalError stopped{Reason::BUG, kStopped};
  const ResourceExhausted no_memory{Reason::NO_MEMORY, "an allocation failed inside a step: the engine has stopped"};
  const Clock clock;
  const HashSecret secret;
  AdmissionControl admission;
  Loop loop;
  Mailbox mailbox;
  const std::optional<int> cpu;
  // Written before `broken`, and read after it.
  std::atomic<bool> device_broke = false;
  std::atomic<bool> broken = false;
  std::thread thread;
};

Engine::Engine(Backend& backend, ForwardPass& forward, const EngineOptions& options, Clock clock, Drafters drafters,
               std::unique_ptr<PromptScorer> scorer, MediaEncoder* encoder) {
  backend.begin();
  thread_ = std::make_unique<Thread>(backend, forward, options, std::move(clock), std::move(drafters),
                                     std::move(scorer), encoder);
}

Engine::~Engine() = default;

void Engine::submit(Command command) {
  std::vector<Command> commands;
  commands.push_back(std::move(command));
  submit(std::move(commands));
}

void Engine::submit(std::vector<Command> commands) {
  thread_->require_running();
  std::vector<AcceptedCommand> accepted = thread_->admission.accept(std::move(commands), thread_->clock());
  try {
    thread_->mailbox.put(std::move(accepted));
  } catch (...) {
    thread_->admission.withdraw(accepted);
    throw;
  }
}

void Engine::hold() {
  thread_->mailbox.hold();
}

void Engine::release() {
  thread_->mailbox.release();
}

void Engine::drain_events(std::vector<Event>& out) {
  thread_->mailbox.drain(out);
}

int Engine::event_descriptor() const noexcept {
  return thread_->mailbox.event_descriptor();
}

QueuePlace Engine::place_of(const std::string& tenant, int n_own, int n_coming) const {
  return thread_->admission.place_of(tenant, n_own, n_coming);
}

EngineStats Engine::stats() const {
  EngineStats stats = thread_->mailbox.stats();
  stats.queued = thread_->admission.waiting();
  stats.waiting_tokens = thread_->admission.waiting_tokens();
  return stats;
}

}  // namespace imp
