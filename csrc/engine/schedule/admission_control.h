// Admission control: checks and counts a command on the caller's thread before it is queued.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/data/commands.h"
#include "engine/data/engine_options.h"
#include "engine/kv/block_hash.h"
#include "engine/schedule/queue_places.h"
#include "model/forward_pass.h"

namespace imp {

// A command that was accepted. Its strings are hashed already, so the engine's thread hashes no bytes of a caller.
struct AcceptedCommand {
  Command command;
  CacheScope scope;  // only for an OpenCommand
  std::int64_t taken_ns = 0;
};

// What the checks need to know of the model and the pool.
struct AdmissionFacts {
  int vocab_size = 0;  // number of bits in a mask; 0: the model makes no logits
  int block_tokens = 0;
  HashSecret secret;
  PoolingFacts pooling = {};
  std::optional<MediaFacts> media = {};  // of the model's encoder
};

// Throws InvalidArgument(CONTEXT_TOO_LONG) if the tokens exceed the context, or if the outputs that must follow them
// do not fit.
void require_context(std::int64_t n_tokens, const RunLimits& limits, int max_context);

// Every method may be called from any thread.
class AdmissionControl {
 public:
  AdmissionControl(const EngineOptions& options, const AdmissionFacts& facts)
      : options_(options),
        facts_(facts),
        n_tokens_(options.n_tokens > 0 ? options.n_tokens : facts.vocab_size),
        places_(options.max_waiting, options.max_waiting_tokens) {}

  // Checks commands and counts what they take: places in the queue, sessions. The runs are of one tenant and take
  // their places together. Throws InvalidArgument, or ResourceExhausted (QUEUE_FULL, SESSIONS_FULL, or KV_FULL if the
  // request can never fit). If it throws, it counts nothing.
  std::vector<AcceptedCommand> accept(std::vector<Command> commands, std::int64_t taken_ns);
  // Reverts the counts of accepted commands that are not queued after all.
  void withdraw(std::span<const AcceptedCommand> accepted);

  // A run left the queue: it was scheduled or it ended.
  void run_left_queue(const std::string& tenant, int n_sequences, std::int64_t n_tokens);
  void session_closed();

  int waiting() const;
  std::int64_t waiting_tokens() const;
  int sessions() const;
  // See QueuePlaces.
  QueuePlace place_of(const std::string& tenant, int n_own, int n_coming) const;

 private:
  void check(const OpenCommand& command) const;
  void check(const RunCommand& command) const;
  void check(const MaskCommand& command) const;
  void check(const DraftCommand& command) const;
  void check(const EndCommand& command) const;
  void check(const PauseCommand&) const {}
  void check(const ForkCommand& command) const;
  void check(const TruncateCommand& command) const;
  void check(const CloseCommand&) const {}
  void check(const FlushCacheCommand&) const {}
  void check(const ProfileCommand& command) const;

  void check_limits(const RunLimits& limits) const;
  void check_returns(const RunReturns& returns) const;
  void check_context(const RunCommand& command) const;
  void check_blocks(const RunCommand& command) const;
  void check_media(const RunCommand& command) const;
  void check_span(const std::string& field, const MediaSpan& span, int least,
                  std::span<const std::int32_t> tokens) const;
  void check_tokens(const std::string& field, std::span<const std::int32_t> tokens) const;

  EngineOptions options_;
  AdmissionFacts facts_;
  int n_tokens_;  // valid token ids are less than this
  mutable std::mutex mutex_;
  QueuePlaces places_;
  int n_sessions_ = 0;
};

}  // namespace imp
