// Encodes the media of runs between the steps of the model.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/data/failure.h"
#include "engine/media/media_numbers.h"
#include "engine/media/media_store.h"
#include "engine/schedule/engine_state.h"
#include "engine/step/piece_pace.h"
#include "engine/step/step.h"
#include "model/media_encoder.h"

namespace imp {

// One part is encoded at a time, in pieces, one in each iteration of the loop. A piece takes as long as the
// prefill rows beside the decode rows of a step, of which it takes a share. So no stream waits longer for an image than
// for a prompt of as many rows.
//
// A run is not admitted before the encoding of the first span that it has to evaluate is there. The other spans are
// encoded while it runs; MediaSpan::is_encoded tells the scheduler how far it may go. What running sequences need next
// goes first, then what they need later, then waiting runs, and within these the run that goes before.
//
// Nothing is lost if an encoding is evicted: it is made again when a run needs it. A running sequence keeps one
// encoding, that of its next span, and evaluates it before it needs another. So one that fits the store is always
// possible after some steps.
class MediaEncodings {
 public:
  // Without an encoder the model takes no media, and the rest does nothing.
  MediaEncodings(EngineState& state, Backend& backend, MediaEncoder* encoder, const Clock& clock);

  bool is_on() const noexcept { return encoder_ != nullptr; }
  const MediaFacts& facts() const noexcept { return encoder_->facts(); }
  // Gives the spans of a new run their numbers and adds them to the sequence, whose tokens behind `first` they are in.
  void add_spans(Sequence& sequence, int first, std::vector<MediaSpan> spans);

  // Encodes a piece, and sets is_encoded of the spans of all runs. Returns false if there is nothing to encode. Throws
  // DeviceError.
  bool advance();
  // A step took step_ns. That decides how large pieces are, which changes no bit.
  void learn(const Step& step, std::int64_t step_ns) noexcept;
  // If the last advance() failed to encode a part: the reason, and a run that needs it; null: none does.
  const std::optional<Failure>& failure() const noexcept { return failure_; }
  Sequence* run_of_failure();

  // Rows of arena() with the encoding of a span.
  std::span<const std::int32_t> rows(const Sequence& sequence, const MediaSpan& span);
  Rows arena() const noexcept { return store_->arena(); }
  std::uint64_t n_bytes_kept() const noexcept;
  // Frees what no run needs.
  void flush();

 private:
  // What a sequence needs next and is not there.
  struct Wanted {
    enum class Order : std::uint8_t { waiting, running_later, running_next } order = Order::waiting;
    Sequence* sequence = nullptr;
    const MediaSpan* span = nullptr;
  };

  static EncodingKey key_of(const Sequence& sequence, const MediaSpan& span) {
    return {.scope = sequence.scope.key, .number = span.number};
  }
  void survey();
  std::optional<Wanted> survey_running(Sequence& sequence);
  std::optional<Wanted> survey_waiting(Sequence& sequence);
  bool goes_before(const Wanted& a, const Wanted& b) const noexcept;
  void want(const std::optional<Wanted>& wanted);
  void count_found(const Sequence& sequence, std::span<const MediaSpan> spans);
  bool begin();
  void run_piece();
  void finish();
  void fail(const std::exception_ptr& thrown);
  void abandon() noexcept;
  bool is_finite(Rows encoding);
  void mark_encoded();
  int n_cached(Sequence& sequence);
  int n_rows() const;
  void restart_numbers();

  EngineState& state_;
  Backend& backend_;
  MediaEncoder* encoder_;
  const Clock& clock_;
  MediaNumbers numbers_;
  std::optional<MediaStore> store_;
  std::optional<Wanted> wanted_;  // of this iteration: what to encode next
  // The part in progress, and its medium, which its runs may leave.
  std::optional<EncodingKey> current_;
  std::shared_ptr<const Media> medium_;
  Sequence* payer_ = nullptr;  // of this iteration: a run that waits for the part in progress; null: there is none
  std::optional<Failure> failure_;
  EncodingKey failed_;
  PiecePace pace_;
  bool has_run_piece_ = false;  // since the last step
  int n_streams_ = 0;           // sequences that the next step may decode
  std::vector<float> row_;      // scratch
};

}  // namespace imp
