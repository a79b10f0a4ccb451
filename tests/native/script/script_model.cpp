// A forward pass that computes logits by a rule.
#include "native/script/script_model.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "native/script/mix.h"

namespace imp::testing {
namespace {

std::uint64_t gap_bits(std::int32_t gap) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(gap)) << 32U;
}

// The last cell that a row sees.
int last_seen(const SequenceRows& sequence, int row) {
  return sequence.ends.empty() ? sequence.first_position + row : sequence.ends[static_cast<std::size_t>(row)] - 1;
}

bool holds(std::span<const std::int32_t> tokens, std::int32_t token) {
  return token >= 0 && std::ranges::find(tokens, token) != tokens.end();
}

}  // namespace

std::int32_t script_cell(std::uint64_t digest, int part, int row) {
  const std::uint64_t place = static_cast<std::uint64_t>(part) << 32U | static_cast<std::uint64_t>(row);
  return 1 << 20 | static_cast<std::int32_t>(mix(digest ^ place) >> 44U);
}

TokenPool::TokenPool(const KvGeometry& geometry) : geometry_(geometry) {
  ids_.resize(static_cast<std::size_t>(geometry.n_blocks) * static_cast<std::size_t>(geometry.block_tokens),
              kUnwritten);
  gaps_.resize(ids_.size());
  states_.resize(static_cast<std::size_t>(geometry.state.n_slots));
}

std::size_t TokenPool::index(std::int32_t block, int slot) const {
  return static_cast<std::size_t>(block) * static_cast<std::size_t>(geometry_.block_tokens) +
         static_cast<std::size_t>(slot);
}

std::int32_t& TokenPool::at(std::int32_t block, int slot) {
  return ids_.at(index(block, slot));
}

std::int32_t& TokenPool::gap(std::int32_t block, int slot) {
  return gaps_.at(index(block, slot));
}

void TokenPool::copy(std::int32_t from, std::int32_t to) {
  for (int slot = 0; slot < geometry_.block_tokens; ++slot) {
    at(to, slot) = at(from, slot);
    gap(to, slot) = gap(from, slot);
  }
}

void TokenPool::poison(std::int32_t block) {
  for (int slot = 0; slot < geometry_.block_tokens; ++slot) at(block, slot) = kPoisoned;
}

ScriptModel::ScriptModel(const Script& given, const std::vector<SampleResult>* drawn)
    : script(given), limits_{.max_rows = given.max_rows, .max_logits_rows = given.max_logits_rows}, drawn_(drawn) {
  states_.reserve(static_cast<std::size_t>(given.max_rows));
  written_.reserve(2 * static_cast<std::size_t>(given.max_rows));
  logits_.resize(static_cast<std::size_t>(given.max_logits_rows) * static_cast<std::size_t>(given.vocab_size));
}

PoolingFacts ScriptModel::pooling() const noexcept {
  const Pooling pooling = script.whole_texts ? Pooling::mean : Pooling::last;
  return {.pooling = script.vector_width > 0 ? pooling : Pooling::none,
          .width = script.vector_width,
          .n_token_types = script.token_types,
          .needs_whole_texts = script.whole_texts,
          .sees_all = script.sees_all};
}

KvGeometry ScriptModel::kv_geometry(int n_blocks, int n_state_slots) const {
  return {.layers = equal_layers(1, {1, 1}),
          .block_tokens = script.block_tokens,
          .n_blocks = n_blocks,
          .state = {.n_layers = script.state ? 1 : 0, .n_slots = n_state_slots}};
}

Rows ScriptModel::forward(const Batch& batch, KvPool& pool) {
  tokens_.assign(batch.tokens.begin(), batch.tokens.end());
  for (std::int32_t& token : tokens_) {
    if (is_drawn(token)) token = std::max(0, drawn_->at(static_cast<std::size_t>(request_of(token))).token);
  }
  place(batch);
  Batch placed = batch;
  placed.tokens = tokens_;
  return evaluate(placed, pool);
}

// The rows of an encoding take the place of tokens.
void ScriptModel::place(const Batch& batch) {
  for (const PlacedRows& placed : batch.placed) {
    for (std::size_t i = 0; i < placed.rows.size(); ++i) {
      const float* const row = placed.from.data + placed.rows[i] * placed.from.stride;
      IMP_CHECK(placed.rows[i] < placed.from.n_rows && row[1] == -row[0]);
      std::int32_t& token = tokens_.at(static_cast<std::size_t>(placed.first_row) + i);
      IMP_CHECK(token == script.media_row_token);
      token = static_cast<std::int32_t>(row[0]);
    }
  }
  IMP_CHECK(std::ranges::none_of(tokens_, is_media));
}

Rows ScriptModel::evaluate(const Batch& batch, KvPool& pool) {
  const std::int64_t number = n_forwards++;
  n_rows_evaluated += static_cast<std::int64_t>(batch.tokens.size());
  if (std::ranges::find(script.failing, number) != script.failing.end()) {
    throw InternalError(Reason::BUG, "the script makes forward pass " + std::to_string(number) + " fail");
  }
  if (holds(batch.tokens, script.hanging_token)) {
    char byte = 0;
    [[maybe_unused]] const ssize_t n_written = ::write(script.hung_fd, &byte, 1);
    [[maybe_unused]] const ssize_t n_read = ::read(script.gate_fd, &byte, 1);
  }
  if (holds(batch.tokens, script.faulting_token)) {
    throw DeviceError(Reason::DEVICE_FAULT, "the script makes the device fail at this token");
  }
  if (holds(batch.tokens, script.failing_token)) throw InternalError(Reason::BUG, "the script makes this token fail");
  IMP_CHECK(static_cast<int>(batch.tokens.size()) <= limits_.max_rows);
  IMP_CHECK(batch.positions.size() == batch.tokens.size() * static_cast<std::size_t>(script.planes));
  IMP_CHECK(static_cast<int>(batch.logits_rows.size()) <= limits_.max_logits_rows);
  if (script.records) record(batch);
  auto& tokens = dynamic_cast<TokenPool&>(pool);
  write(batch, tokens);
  if (watch_ != nullptr) pay_attention(batch, tokens);
  if (script.state) begin_states(batch, tokens);
  std::size_t n_done = 0;
  float* row = logits_.data();
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceRows& sequence = batch.sequences[s];
    for (int i = 0; i < sequence.n_rows; ++i) {
      const int at = sequence.first_row + i;
      if (script.state) {
        const int cell = sequence.first_position + i;
        const std::int32_t block = sequence.blocks[static_cast<std::size_t>(cell / script.block_tokens)];
        states_[s] =
            next(states_[s], batch.tokens[static_cast<std::size_t>(at)], tokens.gap(block, cell % script.block_tokens));
        save_states(sequence, i + 1, states_[s], tokens);
      }
      if (n_done == batch.logits_rows.size() || batch.logits_rows[n_done] != at) continue;
      fill_row(sequence, last_seen(sequence, i), script.state ? states_[s] : ScriptState{}, tokens, row);
      row += script.vocab_size;
      ++n_done;
    }
  }
  IMP_CHECK(n_done == batch.logits_rows.size());
  make_vectors(batch, tokens);
  const int width = script.vocab_size - (holds(batch.tokens, script.narrow_token) ? 1 : 0);
  return {.data = logits_.data(), .n_rows = static_cast<int>(n_done), .width = width, .stride = script.vocab_size};
}

void ScriptModel::record(const Batch& batch) {
  std::vector<EvaluatedRows>& step = recorded.emplace_back();
  for (const SequenceRows& sequence : batch.sequences) {
    const auto tokens =
        batch.tokens.subspan(static_cast<std::size_t>(sequence.first_row), static_cast<std::size_t>(sequence.n_rows));
    const auto n_logits = std::ranges::count_if(batch.logits_rows, [&](std::int32_t row) {
      return row >= sequence.first_row && row < sequence.first_row + sequence.n_rows;
    });
    EvaluatedRows& rows = step.emplace_back();
    rows = {
        .first_position = sequence.first_position,
        .tokens = {tokens.begin(), tokens.end()},
        .positions = {},
        .ends = {sequence.ends.begin(), sequence.ends.end()},
        .starts = {sequence.starts.begin(), sequence.starts.end()},
        .types = types_of(batch, sequence),
        .is_pooled = std::ranges::find(batch.pooled, static_cast<std::int32_t>(step.size()) - 1) != batch.pooled.end(),
        .n_logits_rows = static_cast<int>(n_logits),
        .state = sequence.state,
        .saved = {}};
    for (int plane = 0; plane < script.planes; ++plane) {
      const auto first =
          static_cast<std::size_t>(plane) * batch.tokens.size() + static_cast<std::size_t>(sequence.first_row);
      const auto positions = batch.positions.subspan(first, tokens.size());
      rows.positions.insert(rows.positions.end(), positions.begin(), positions.end());
    }
    for (const PlacedRows& placed : batch.placed) {
      const bool is_here =
          placed.first_row >= sequence.first_row && placed.first_row < sequence.first_row + sequence.n_rows;
      rows.n_placed += is_here ? static_cast<int>(placed.rows.size()) : 0;
    }
    for (const StateSave& save : sequence.state_saves) rows.saved.push_back(save.slot);
  }
}

void ScriptModel::write(const Batch& batch, TokenPool& pool) const {
  std::size_t row = 0;
  for (const SequenceRows& sequence : batch.sequences) {
    IMP_CHECK(static_cast<std::size_t>(sequence.first_row) == row);
    for (int i = 0; i < sequence.n_rows; ++i, ++row) {
      const int position = sequence.first_position + i;
      IMP_CHECK(script.planes > 1 || batch.positions[row] >= position);
      const auto block = static_cast<std::size_t>(position / script.block_tokens);
      IMP_CHECK(block < sequence.blocks.size());
      pool.at(sequence.blocks[block], position % script.block_tokens) = batch.tokens[row];
      std::int32_t& gap = pool.gap(sequence.blocks[block], position % script.block_tokens);
      gap = 0;
      for (int plane = 0, factor = 1; plane < script.planes; ++plane, factor *= 257) {
        gap += factor * (batch.positions[static_cast<std::size_t>(plane) * batch.tokens.size() + row] - position);
      }
    }
  }
  IMP_CHECK(row == batch.tokens.size());
}

// A key gets attention by its token alone.
void ScriptModel::pay_attention(const Batch& batch, TokenPool& pool) const {
  IMP_CHECK(batch.sequences.size() == 1 && batch.tokens.size() == 1);
  const SequenceRows& sequence = batch.sequences.front();
  IMP_CHECK(watch_->first_key + static_cast<int>(watch_->mass.size()) <= sequence.first_position);
  for (std::size_t i = 0; i < watch_->mass.size() && script.watched_layers > 0; ++i) {
    const int key = watch_->first_key + static_cast<int>(i);
    const std::int32_t token =
        pool.at(sequence.blocks[static_cast<std::size_t>(key / script.block_tokens)], key % script.block_tokens);
    const float paid = static_cast<float>(mix(static_cast<std::uint64_t>(token) + 1) >> 40U) * 0x1p-24F;
    watch_->mass[i] = std::max(watch_->mass[i], paid);
  }
  watch_->n_layers += script.watched_layers;
}

// Copies the states that the batch reads, and checks that it writes to other slots.
void ScriptModel::begin_states(const Batch& batch, TokenPool& pool) {
  states_.clear();
  written_.clear();
  for (const SequenceRows& sequence : batch.sequences) {
    IMP_CHECK((sequence.state == kNoSlot) == (sequence.first_position == 0));
    states_.push_back(sequence.state == kNoSlot ? ScriptState{} : pool.state(sequence.state));
    IMP_CHECK(!sequence.state_saves.empty() && sequence.state_saves.back().n_rows == sequence.n_rows);
    IMP_CHECK(std::ranges::is_sorted(sequence.state_saves, {}, &StateSave::n_rows));
    for (const StateSave& save : sequence.state_saves) {
      IMP_CHECK(std::ranges::find(written_, save.slot) == written_.end());
      written_.push_back(save.slot);
    }
  }
  for (const SequenceRows& sequence : batch.sequences) {
    IMP_CHECK(std::ranges::find(written_, sequence.state) == written_.end());
  }
}

void ScriptModel::save_states(const SequenceRows& sequence, int n_rows, const ScriptState& state, TokenPool& pool) {
  for (const StateSave& save : sequence.state_saves) {
    if (save.n_rows == n_rows) pool.state(save.slot) = state;
  }
}

ScriptState ScriptModel::next(ScriptState state, std::int32_t token, std::int32_t gap) const {
  return {.hash = mix(state.hash ^ (static_cast<std::uint64_t>(token) + 1) ^ gap_bits(gap)),
          .n_tokens = state.n_tokens + 1,
          .broken = state.broken || (token == script.nan_token && token >= 0)};
}

void ScriptModel::fill_row(const SequenceRows& sequence, int position, const ScriptState& recurrent, TokenPool& pool,
                           float* row) const {
  if (script.rule == ScriptRule::cheap) {
    const auto block = static_cast<std::size_t>(position / script.block_tokens);
    const std::int32_t token = pool.at(sequence.blocks[block], position % script.block_tokens);
    std::fill_n(row, script.vocab_size, 0.0F);
    row[(token + 1) % script.vocab_size] = 16;
    return;
  }
  std::uint64_t state = 0;
  bool broken = false;
  std::int32_t last = 0;
  for (int p = 0; p <= position; ++p) {
    const std::int32_t block = sequence.blocks[static_cast<std::size_t>(p / script.block_tokens)];
    last = pool.at(block, p % script.block_tokens);
    IMP_CHECK(last != TokenPool::kUnwritten);
    broken = broken || last == TokenPool::kPoisoned || (last == script.nan_token && last >= 0);
    state = mix(state ^ (static_cast<std::uint64_t>(last) + 1) ^ gap_bits(pool.gap(block, p % script.block_tokens)));
  }
  // The cache and the state must agree on the tokens.
  if (script.state && (recurrent.hash != state || recurrent.n_tokens != position + 1)) state = mix(~recurrent.hash);
  follow_rule({.hash = state, .n_tokens = position + 1, .broken = broken || recurrent.broken}, last, row);
}

// A vector depends on every row before its end: those of a text that has to be whole come from the batch, with their
// types, others from the cache.
void ScriptModel::make_vectors(const Batch& batch, TokenPool& pool) {
  vectors_.clear();
  for (const std::int32_t index : batch.pooled) {
    const SequenceRows& sequence = batch.sequences[static_cast<std::size_t>(index)];
    IMP_CHECK(!script.whole_texts || sequence.first_position == 0);
    IMP_CHECK(std::ssize(sequence.ends) == (script.sees_all ? sequence.n_rows : 0));
    IMP_CHECK(std::ranges::all_of(sequence.ends, [&](std::int32_t end) { return end == sequence.n_rows; }));
    const std::vector<std::int32_t> types = types_of(batch, sequence);
    TextHash text;
    for (int p = 0; p < sequence.first_position + sequence.n_rows; ++p) {
      const std::int32_t block = sequence.blocks[static_cast<std::size_t>(p / script.block_tokens)];
      const std::int32_t token = pool.at(block, p % script.block_tokens);
      IMP_CHECK(token != TokenPool::kUnwritten);
      const bool has_type = p >= sequence.first_position && !types.empty();
      const std::int32_t type = has_type ? types[static_cast<std::size_t>(p - sequence.first_position)] : 0;
      text.add(token, type);
      text.is_zero |= token == script.zero_token;
      text.is_broken |= token == script.nan_token || token == TokenPool::kPoisoned;
    }
    vectors_.add(text, script.vector_width);
  }
}

void ScriptModel::logits_after(std::span<const std::int32_t> tokens, std::span<float> row) const {
  ScriptState state;
  for (const std::int32_t token : tokens) state = next(state, token);
  follow_rule(state, tokens.back(), row.data());
}

void ScriptModel::follow_rule(const ScriptState& state, std::int32_t last, float* row) const {
  const int position = state.n_tokens - 1;
  for (int id = 0; id < script.vocab_size; ++id) {
    // In [0, 8). 24 bits, so that every value is exact as a float.
    const std::uint64_t bits = mix(state.hash + static_cast<std::uint64_t>(id)) >> 40U;
    row[id] = static_cast<float>(bits) * (1.0F / (1U << 21U));
  }
  if (script.rule == ScriptRule::counter) row[(last + 1) % script.vocab_size] = 16;
  if (script.rule == ScriptRule::table) {
    row[script.table[static_cast<std::size_t>(position) % script.table.size()]] = 16;
  }
  if (state.broken) row[position % script.vocab_size] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace imp::testing
