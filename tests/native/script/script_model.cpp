// Logits by rule.
#include "native/script/script_model.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace imp::testing {
namespace {

// splitmix64: the tests' oracle computes the same.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

bool holds(std::span<const std::int32_t> tokens, std::int32_t token) {
  return token >= 0 && std::ranges::find(tokens, token) != tokens.end();
}

}  // namespace

TokenPool::TokenPool(const KvGeometry& geometry) : geometry_(geometry) {
  ids_.resize(static_cast<std::size_t>(geometry.n_blocks) * static_cast<std::size_t>(geometry.block_tokens),
              kUnwritten);
}

std::int32_t& TokenPool::at(std::int32_t block, int slot) {
  return ids_.at(static_cast<std::size_t>(block) * static_cast<std::size_t>(geometry_.block_tokens) +
                 static_cast<std::size_t>(slot));
}

void TokenPool::copy(std::int32_t from, std::int32_t to) {
  for (int slot = 0; slot < geometry_.block_tokens; ++slot) at(to, slot) = at(from, slot);
}

void TokenPool::poison(std::int32_t block) {
  for (int slot = 0; slot < geometry_.block_tokens; ++slot) at(block, slot) = kPoisoned;
}

ScriptModel::ScriptModel(const Script& given, const std::vector<SampleResult>* drawn)
    : script(given), limits_{.max_rows = given.max_rows, .max_logits_rows = given.max_logits_rows}, drawn_(drawn) {
  logits_.resize(static_cast<std::size_t>(given.max_logits_rows) * static_cast<std::size_t>(given.vocab_size));
}

KvGeometry ScriptModel::kv_geometry(int n_blocks) const {
  return {.n_layers = 1, .n_kv_heads = 1, .head_dim = 1, .block_tokens = script.block_tokens, .n_blocks = n_blocks};
}

Rows ScriptModel::forward(const Batch& batch, KvPool& pool) {
  tokens_.assign(batch.tokens.begin(), batch.tokens.end());
  for (std::int32_t& token : tokens_) {
    if (is_drawn(token)) token = std::max(0, drawn_->at(static_cast<std::size_t>(request_of(token))).token);
  }
  return evaluate({tokens_, batch.positions, batch.sequences, batch.logits_rows}, pool);
}

Rows ScriptModel::evaluate(const Batch& batch, KvPool& pool) {
  const std::int64_t number = n_forwards++;
  if (std::ranges::find(script.failing, number) != script.failing.end()) {
    throw InternalError(Reason::BUG, "the script lets forward pass " + std::to_string(number) + " fail");
  }
  if (holds(batch.tokens, script.hanging_token)) {
    char byte = 0;
    [[maybe_unused]] const ssize_t n_written = ::write(script.hung_fd, &byte, 1);
    [[maybe_unused]] const ssize_t n_read = ::read(script.gate_fd, &byte, 1);
  }
  if (holds(batch.tokens, script.faulting_token)) {
    throw DeviceError(Reason::DEVICE_FAULT, "the script lets the device fail at this token");
  }
  if (holds(batch.tokens, script.failing_token)) throw InternalError(Reason::BUG, "the script lets this token fail");
  IMP_CHECK(static_cast<int>(batch.tokens.size()) <= limits_.max_rows);
  IMP_CHECK(static_cast<int>(batch.logits_rows.size()) <= limits_.max_logits_rows);
  if (script.records) record(batch);
  auto& tokens = dynamic_cast<TokenPool&>(pool);
  write(batch, tokens);
  std::size_t next = 0;
  float* row = logits_.data();
  for (const SequenceRows& sequence : batch.sequences) {
    for (int i = 0; i < sequence.n_rows; ++i) {
      if (next == batch.logits_rows.size() || batch.logits_rows[next] != sequence.first_row + i) continue;
      fill_row(sequence, sequence.first_position + i, tokens, row);
      row += script.vocab_size;
      ++next;
    }
  }
  IMP_CHECK(next == batch.logits_rows.size());
  const int width = script.vocab_size - (holds(batch.tokens, script.narrow_token) ? 1 : 0);
  return {.data = logits_.data(), .n_rows = static_cast<int>(next), .width = width, .stride = script.vocab_size};
}

void ScriptModel::record(const Batch& batch) {
  std::vector<EvaluatedRows>& step = recorded.emplace_back();
  for (const SequenceRows& sequence : batch.sequences) {
    const auto tokens =
        batch.tokens.subspan(static_cast<std::size_t>(sequence.first_row), static_cast<std::size_t>(sequence.n_rows));
    const auto n_logits = std::ranges::count_if(batch.logits_rows, [&](std::int32_t row) {
      return row >= sequence.first_row && row < sequence.first_row + sequence.n_rows;
    });
    step.push_back({sequence.first_position, {tokens.begin(), tokens.end()}, static_cast<int>(n_logits)});
  }
}

void ScriptModel::write(const Batch& batch, TokenPool& pool) const {
  std::size_t row = 0;
  for (const SequenceRows& sequence : batch.sequences) {
    IMP_CHECK(static_cast<std::size_t>(sequence.first_row) == row);
    for (int i = 0; i < sequence.n_rows; ++i, ++row) {
      const int position = sequence.first_position + i;
      IMP_CHECK(batch.positions[row] == position);
      const auto block = static_cast<std::size_t>(position / script.block_tokens);
      IMP_CHECK(block < sequence.blocks.size());
      pool.at(sequence.blocks[block], position % script.block_tokens) = batch.tokens[row];
    }
  }
  IMP_CHECK(row == batch.tokens.size());
}

void ScriptModel::fill_row(const SequenceRows& sequence, int position, TokenPool& pool, float* row) const {
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
    last = pool.at(sequence.blocks[static_cast<std::size_t>(p / script.block_tokens)], p % script.block_tokens);
    IMP_CHECK(last != TokenPool::kUnwritten);
    broken = broken || last == TokenPool::kPoisoned || (last == script.nan_token && last >= 0);
    state = mix(state ^ (static_cast<std::uint64_t>(last) + 1));
  }
  for (int id = 0; id < script.vocab_size; ++id) {
    // 24 bits, so that every value is a float exactly: in [0, 8).
    const std::uint64_t bits = mix(state + static_cast<std::uint64_t>(id)) >> 40U;
    row[id] = static_cast<float>(bits) * (1.0F / (1U << 21U));
  }
  if (script.rule == ScriptRule::counter) row[(last + 1) % script.vocab_size] = 16;
  if (script.rule == ScriptRule::table) {
    row[script.table[static_cast<std::size_t>(position) % script.table.size()]] = 16;
  }
  if (broken) row[position % script.vocab_size] = std::numeric_limits<float>::quiet_NaN();
}

}  // namespace imp::testing
