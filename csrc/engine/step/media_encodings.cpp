// Chooses what to encode next, and keeps the runs informed.
#include "engine/step/media_encodings.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <set>
#include <utility>

#include "base/error.h"

namespace imp {
namespace {

// Without streams that wait, a piece takes about this long, so that commands are not kept waiting.
constexpr double kIdlePieceNs = 50e6;
// The rows of a piece while nothing is measured.
constexpr int kFirstRows = 64;

}  // namespace

MediaEncodings::MediaEncodings(EngineState& state, Backend& backend, MediaEncoder* encoder, const Clock& clock)
    : state_(state), backend_(backend), encoder_(encoder), clock_(clock), numbers_(state.options.media_numbers) {
  if (encoder_ == nullptr) return;
  store_.emplace(backend, facts().width, state.options.media_rows);
  row_.resize(static_cast<std::size_t>(facts().width));
}

void MediaEncodings::add_spans(Sequence& sequence, int first, std::vector<MediaSpan> spans) {
  for (MediaSpan& span : spans) {
    if (numbers_.is_used_up()) restart_numbers();
    span.first += first;
    span.number = numbers_.number_of(span);
    const auto begin = sequence.tokens.begin() + span.first;
    std::fill(begin, begin + span.n_cells, span.number);
    sequence.media.append(std::move(span));
  }
}

// The blocks that stay in the prefix cache belong to sequences, whose numbers are not given again.
void MediaEncodings::restart_numbers() {
  std::set<std::int32_t> held;
  for (const auto& [id, sequence] : state_.sequences) {
    for (const MediaSpan& span : sequence->media.all()) held.insert(span.number);
  }
  state_.blocks.flush();
  store_->clear();
  abandon();
  numbers_.restart(std::move(held));
}

bool MediaEncodings::advance() {
  failure_.reset();
  if (!state_.may_have_media) return false;
  survey();
  const bool has_begun = current_.has_value() || begin();
  if (has_begun && current_) run_piece();
  mark_encoded();
  return has_begun;
}

// Finds what the runs need: what has to stay in the store, and what is to be encoded next. If no run has media, there
// is nothing to find until one begins.
void MediaEncodings::survey() {
  store_->clear_needs();
  wanted_.reset();
  payer_ = nullptr;
  n_streams_ = 0;
  state_.may_have_media = false;
  state_.scheduler.for_each_running([this](Sequence& sequence) {
    state_.may_have_media |= !sequence.media.empty();
    n_streams_ += sequence.is_runnable() ? 1 : 0;
    want(survey_running(sequence));
  });
  state_.scheduler.for_each_waiting([this](Sequence& sequence) {
    state_.may_have_media |= !sequence.media.empty();
    want(survey_waiting(sequence));
  });
  if (payer_ == nullptr) abandon();
}

void MediaEncodings::abandon() noexcept {
  current_.reset();
  medium_.reset();
}

void MediaEncodings::want(const std::optional<Wanted>& wanted) {
  if (!wanted) return;
  if (current_ && key_of(*wanted->sequence, *wanted->span) == *current_) payer_ = wanted->sequence;
  if (!wanted_ || goes_before(*wanted, *wanted_)) wanted_ = wanted;
}

bool MediaEncodings::goes_before(const Wanted& a, const Wanted& b) const noexcept {
  if (a.order != b.order) return a.order > b.order;
  return state_.scheduler.goes_before(*a.sequence, *b.sequence, state_.now_ns);
}

std::optional<MediaEncodings::Wanted> MediaEncodings::survey_running(Sequence& sequence) {
  if (sequence.run->paused()) return std::nullopt;
  bool is_next = true;
  for (const MediaSpan& span : std::as_const(sequence.media).from(sequence.held)) {
    const EncodingKey key = key_of(sequence, span);
    if (!store_->contains(key)) {
      const Wanted::Order order = is_next ? Wanted::Order::running_next : Wanted::Order::running_later;
      return Wanted{.order = order, .sequence = &sequence, .span = &span};
    }
    store_->need(key, is_next ? NeededBy::running : NeededBy::waiting);
    is_next = false;
  }
  return std::nullopt;
}

// A run that could not start now even if all of its media were encoded needs nothing yet.
std::optional<MediaEncodings::Wanted> MediaEncodings::survey_waiting(Sequence& sequence) {
  Run& run = *sequence.run;
  if (!run.awaits_media && run.n_cached_before < 0) return std::nullopt;
  if (!state_.scheduler.may_start(sequence)) return std::nullopt;
  const bool is_new = run.n_cached_before < 0;
  if (is_new) run.n_cached_before = n_cached(sequence);
  const auto left = std::as_const(sequence.media).from(run.n_cached_before);
  if (is_new && run.n_preemptions == 0) count_found(sequence, left);
  const bool is_there = left.empty() || store_->contains(key_of(sequence, left.front()));
  run.awaits_media = !is_there;
  if (left.empty()) return std::nullopt;
  if (!is_there) return Wanted{.order = Wanted::Order::waiting, .sequence = &sequence, .span = &left.front()};
  store_->need(key_of(sequence, left.front()), NeededBy::waiting);
  return std::nullopt;
}

void MediaEncodings::count_found(const Sequence& sequence, std::span<const MediaSpan> spans) {
  const auto is_there = [&](const MediaSpan& span) { return store_->contains(key_of(sequence, span)); };
  state_.stats.n_found += static_cast<std::uint64_t>(std::ranges::count_if(spans, is_there));
}

// Cells that need no evaluation because the prefix cache holds them, as far as one can tell before the run starts.
int MediaEncodings::n_cached(Sequence& sequence) {
  const Run& run = *sequence.run;
  if (sequence.bypass_prefix || (run.returns.scores && !run.started)) return sequence.held;
  try {
    return std::max(sequence.held, state_.blocks.n_matching(sequence.scope.key, sequence.tokens));
  } catch (const std::bad_alloc&) {  // then its media are encoded, perhaps in vain
    return sequence.held;
  }
}

// Returns false if there is nothing to encode, or no room for it until other runs have evaluated what they need.
bool MediaEncodings::begin() {
  if (!wanted_) return false;
  Sequence& sequence = *wanted_->sequence;
  if (wanted_->order == Wanted::Order::waiting) {
    const int n_before = std::exchange(sequence.run->n_cached_before, n_cached(sequence));
    if (sequence.run->n_cached_before != n_before) return true;  // the next iteration looks again
  }
  const MediaSpan& span = *wanted_->span;
  const NeededBy by = wanted_->order == Wanted::Order::running_next ? NeededBy::running : NeededBy::waiting;
  current_ = key_of(sequence, span);
  medium_ = span.media;
  payer_ = &sequence;
  try {
    if (!store_->make_room(span.n_cells, by)) {
      abandon();
      return false;
    }
    encoder_->begin(*medium_, span.part);
  } catch (const DeviceError&) {
    throw;
  } catch (...) {
    fail(std::current_exception());
  }
  return true;
}

void MediaEncodings::run_piece() {
  const std::int64_t begin_ns = clock_();
  try {
    const int n_encoded = encoder_->advance(this->n_rows());
    const std::int64_t ns = clock_() - begin_ns;
    has_run_piece_ = true;
    pace_.add_piece(n_encoded, static_cast<double>(ns));
    const int n_rows = pace_.rows_of_prompt(n_encoded);
    state_.stats.encode_ns += ns;
    payer_->run->encode_ns += ns;
    state_.scheduler.charge(*payer_, n_rows);
    state_.scheduler.take_prefill_rows(n_rows);
    if (encoder_->is_done()) finish();
  } catch (const DeviceError&) {
    throw;
  } catch (...) {
    fail(std::current_exception());
  }
  state_.stats.last_step_ns = clock_();
}

void MediaEncodings::fail(const std::exception_ptr& thrown) {
  failure_ = failure_of(thrown);
  failed_ = *current_;
  abandon();
}

void MediaEncodings::finish() {
  const Rows encoding = encoder_->encoding();
  if (!is_finite(encoding)) throw InternalError(Reason::NON_FINITE, "the encoding of a medium is not finite");
  store_->add(*current_, encoding);
  ++state_.stats.n_encoded;
  abandon();
}

bool MediaEncodings::is_finite(Rows encoding) {
  for (int row = 0; row < encoding.n_rows; ++row) {
    backend_.read_row(encoding, row, row_);
    if (!std::ranges::all_of(row_, [](float x) { return std::isfinite(x); })) return false;
  }
  return true;
}

// A run whose first span is there by now is admitted in this iteration.
void MediaEncodings::mark_encoded() {
  const auto mark = [this](Sequence& sequence) {
    for (MediaSpan& span : sequence.media.from(0)) span.is_encoded = store_->contains(key_of(sequence, span));
  };
  state_.scheduler.for_each_running(mark);
  state_.scheduler.for_each_waiting([&](Sequence& sequence) {
    mark(sequence);
    if (!sequence.run->awaits_media || sequence.run->n_cached_before < 0) return;
    const auto left = std::as_const(sequence.media).from(sequence.run->n_cached_before);
    sequence.run->awaits_media = !left.empty() && !left.front().is_encoded;
  });
}

Sequence* MediaEncodings::run_of_failure() {
  Sequence* found = nullptr;
  const auto look_at = [&](Sequence& sequence) {
    const auto left = std::as_const(sequence.media).from(sequence.held);
    const auto is_failed = [&](const MediaSpan& span) { return key_of(sequence, span) == failed_; };
    if (std::ranges::any_of(left, is_failed)) found = &sequence;
  };
  state_.scheduler.for_each_running(look_at);
  state_.scheduler.for_each_waiting(look_at);
  return found;
}

// Beside decode rows, encodings share the rows of prompts with the prompts that wait.
int MediaEncodings::n_rows() const {
  if (n_streams_ > 0) {
    const int most = state_.scheduler.most_prefill_rows(n_streams_);
    return pace_.rows_to_encode(state_.scheduler.has_prefill() ? std::max(1, most / 2) : most);
  }
  const double row_ns = pace_.encoded_row_ns();
  return row_ns > 0 ? static_cast<int>(std::clamp(kIdlePieceNs / row_ns, 1.0, 1e6)) : kFirstRows;
}

// A device that runs ahead may have done a piece and a step at once, so a step beside a piece measures nothing. Guesses
// would count as decode rows.
void MediaEncodings::learn(const Step& step, std::int64_t step_ns) noexcept {
  if (!is_on() || std::exchange(has_run_piece_, false) || step.n_guess_rows > 0) return;
  pace_.add_step(step.n_decode_rows, step.n_prefill_rows, static_cast<double>(step_ns));
}

std::uint64_t MediaEncodings::n_bytes_kept() const noexcept {
  if (!store_) return 0;
  return static_cast<std::uint64_t>(store_->n_rows_kept()) * row_.size() * sizeof(float);
}

std::span<const std::int32_t> MediaEncodings::rows(const Sequence& sequence, const MediaSpan& span) {
  return store_->rows(key_of(sequence, span));
}

void MediaEncodings::flush() {
  if (store_) store_->evict_unneeded();
}

}  // namespace imp
