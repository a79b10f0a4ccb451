// Takes commands between steps. One that fails is answered with an event.
#include <exception>
#include <new>
#include <utility>
#include <variant>

#include "engine/data/failure.h"
#include "engine/run/loop.h"
#include "engine/run/reserve_more.h"

namespace imp {
namespace {

// One call operator for each alternative of a variant.
template <class... Calls>
struct Overloads : Calls... {
  using Calls::operator()...;
};

// The receiver of a failed command's events.
struct Address {
  Ticket ticket = 0;
  SequenceId sequence = 0;
};

Address address_of(const Command& command) {
  return std::visit(
      [](const auto& any) -> Address {
        Address address;
        if constexpr (requires { any.ticket; }) address.ticket = any.ticket;
        if constexpr (requires { any.sequence; }) address.sequence = any.sequence;
        return address;
      },
      command);
}

// Commands that free something. They run even if there may be no memory for an answer.
bool only_frees(const Command& command) noexcept {
  const auto* const profile = std::get_if<ProfileCommand>(&command);
  return std::holds_alternative<EndCommand>(command) || std::holds_alternative<CloseCommand>(command) ||
         (profile != nullptr && profile->n_steps == 0);
}

}  // namespace

void Loop::take(AcceptedCommand accepted) {
  state_.now_ns = clock_();
  const Address address = address_of(accepted.command);
  try {
    // Reserve first, so that no command acts without memory for its answer.
    const bool has_room = reserve_more(state_.events, events_of(accepted.command));
    if (!has_room && !only_frees(accepted.command)) throw std::bad_alloc();
    dispatch(accepted);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    Sequence* addressed = state_.find(address.sequence);
    if (addressed != nullptr && addressed->run && addressed->run->ticket == address.ticket) {
      runs_.fail(*addressed, failure);  // its reader would wait for an event that never comes
    } else {
      state_.report_failure(address.ticket, address.sequence, 0, failure);
    }
  }
}

// The most events that a command causes for each sequence: an answer, the end of a run, and its own failure.
std::size_t Loop::events_of(const Command& command) noexcept {
  constexpr std::size_t kOfOne = 3;
  std::size_t n_siblings = 0;
  if (const auto* begun = std::get_if<RunCommand>(&command)) {
    n_siblings = begun->siblings.size();
  } else if (const Sequence* addressed = state_.find(address_of(command).sequence); addressed && addressed->run) {
    const Sequence* leader = addressed->run->leader;
    n_siblings = (leader == nullptr ? addressed : leader)->run->siblings.size();
  }
  return kOfOne * (1 + n_siblings);
}

void Loop::dispatch(AcceptedCommand& accepted) {
  std::visit(
      Overloads{[&](OpenCommand& open) { sessions_.open(open, accepted.scope); },
                [&](RunCommand& run) { runs_.begin(std::move(run), accepted.taken_ns); },
                [&](MaskCommand& mask) { runs_.set_mask(std::move(mask), accepted.taken_ns); },
                [&](DraftCommand& draft) { runs_.set_guesses(std::move(draft), accepted.taken_ns); },
                [&](EndCommand& end) { end_run(end, accepted.taken_ns); },
                [&](PauseCommand& pause) { runs_.pause(pause); }, [&](ForkCommand& fork) { sessions_.fork(fork); },
                [&](TruncateCommand& truncate) { sessions_.truncate(truncate); },
                [&](CloseCommand& close) { sessions_.close(close); },
                [&](FlushCacheCommand& flush) {
                  sessions_.flush(flush);
                  speculation_.flush();
                  media_.flush();
                },
                [&](ProfileCommand& profile) { recorder_.begin(profile, state_.events); }},
      accepted.command);
}

void Loop::end_run(const EndCommand& end, std::int64_t taken_ns) {
  const bool ended = runs_.end(end);
  if (ended && end.reason == EndReason::cancelled) state_.stats.cancels.add(clock_() - taken_ns);
}

}  // namespace imp
