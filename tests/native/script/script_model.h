// A forward pass whose logits follow a rule that the test chooses, over a cache of token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/attention.h"
#include "backend/kv_pool.h"
#include "backend/sampler.h"
#include "model/forward_pass.h"
#include "native/script/script_vectors.h"

namespace imp::testing {

// A recurrent state: a hash of all tokens before it.
struct ScriptState {
  std::uint64_t hash = 0;
  int n_tokens = 0;
  bool broken = false;  // a token was the script's nan_token
};

// A cache of token ids: each position holds the id that was evaluated there. It also has slots of recurrent state.
class TokenPool final : public KvPool {
 public:
  static constexpr std::int32_t kUnwritten = -1;
  static constexpr std::int32_t kPoisoned = -2;

  explicit TokenPool(const KvGeometry& geometry);
  const KvGeometry& geometry() const noexcept override { return geometry_; }
  std::size_t n_bytes() const noexcept override { return ids_.size() * sizeof(std::int32_t); }
  std::int32_t& at(std::int32_t block, int slot);
  // By how much the positions of what is written there exceed the place in the sequence's blocks: one number for all
  // planes.
  std::int32_t& gap(std::int32_t block, int slot);
  void copy(std::int32_t from, std::int32_t to);
  void poison(std::int32_t block);
  ScriptState& state(std::int32_t slot) { return states_.at(static_cast<std::size_t>(slot)); }

 private:
  KvGeometry geometry_;
  std::size_t index(std::int32_t block, int slot) const;
  std::vector<std::int32_t> ids_, gaps_;
  std::vector<ScriptState> states_;
};

// The width of the rows of a ScriptEncoder, and the token that the model takes a row for: it is beyond the vocabulary.
inline constexpr int kScriptWidth = 2;
std::int32_t script_cell(std::uint64_t digest, int part, int row);

enum class ScriptRule : std::uint8_t {
  hash,     // logits are a hash of all ids from position 0 on: any wrong block changes them
  counter,  // n + 1 follows n
  table,    // after position p comes table[p mod size]
  cheap,    // n + 1 follows n, without reading the cache: to measure the time outside of a model
};

struct Script {
  int vocab_size = 16;
  int block_tokens = 16;
  int max_rows = 512;
  int max_logits_rows = 64;
  ScriptRule rule = ScriptRule::hash;
  std::vector<std::int32_t> table;
  std::vector<std::int64_t> failing;  // the numbers of the forward passes that throw, from 0
  std::int32_t failing_token = -1;    // a batch with it throws
  std::int32_t faulting_token = -1;   // a batch with it throws the error of a broken device
  std::int32_t narrow_token = -1;     // a batch with it returns one logit too few
  std::int32_t nan_token = -1;        // a row that attends to it has NaN logits
  std::int32_t hanging_token = -1;    // a batch with it writes a byte to hung_fd, and waits for one from gate_fd
  int hung_fd = -1;
  int gate_fd = -1;
  int window = 0;          // of the layers that would have one
  int watched_layers = 1;  // that a watch of the attention sees
  bool state = false;      // the model has a recurrent state; the logits depend on it
  bool ahead = false;      // like a device that runs asynchronously
  int planes = 1;          // of positions
  // Of the encoder of media; 0 rows: there is none.
  int media_rows = 0;    // of the largest part
  int media_atomic = 0;  // cells of the largest part whose cells see each other
  int media_cost = 1;    // the rows of a prompt that take as long as a row of an encoding
  std::int32_t media_placeholder = 3;
  std::int32_t media_row_token = 4;
  bool head = true;              // it makes logits
  int vector_width = 0;          // of the vectors of texts; 0: it makes none
  int token_types = 0;           // of their rows
  bool whole_texts = false;      // all rows of a text are in one batch
  bool sees_all = false;         // and each of them sees the others
  std::int32_t zero_token = -1;  // a text with it has the vector 0, and one with nan_token a NaN
  double drafts = -1;            // a drafter guesses, and this share of its guesses is right; below 0: there is none
  bool records = true;
};

// One sequence's part of a forward pass.
struct EvaluatedRows {
  int first_position = 0;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;  // [planes, rows]
  std::vector<std::int32_t> ends;
  std::vector<std::int32_t> starts;
  std::vector<std::int32_t> types;
  bool is_pooled = false;
  int n_placed = 0;
  int n_logits_rows = 0;
  std::int32_t state = kNoSlot;     // slot to read
  std::vector<std::int32_t> saved;  // slots to write
};

// Computes the logits of a row from the pool through its block table, so that a wrong table, a wrongly shared block or
// a missing copy changes the tokens. Reading a position that was never written throws.
class ScriptModel final : public ForwardPass {
 public:
  // drawn: the pool with the drawn tokens of a batch, or none.
  explicit ScriptModel(const Script& script, const std::vector<SampleResult>* drawn = nullptr);

  int vocab_size() const noexcept override { return script.head ? script.vocab_size : 0; }
  const ForwardLimits& limits() const noexcept override { return limits_; }
  KvGeometry kv_geometry(int n_blocks, int n_state_slots) const override;
  int n_planes() const noexcept override { return script.planes; }
  int window() const noexcept override { return script.window; }
  void watch(AttentionWatch* watch) override { watch_ = watch; }
  PoolingFacts pooling() const noexcept override;
  Rows pooled() const override { return vectors_.rows(); }
  Rows forward(const Batch& batch, KvPool& pool) override;
  // The logits after these tokens, without a cache.
  void logits_after(std::span<const std::int32_t> tokens, std::span<float> row) const;

  Script script;
  std::int64_t n_forwards = 0;
  std::int64_t n_rows_evaluated = 0;
  std::vector<std::vector<EvaluatedRows>> recorded;

 private:
  Rows evaluate(const Batch& batch, KvPool& pool);
  void place(const Batch& batch);
  void record(const Batch& batch);
  void write(const Batch& batch, TokenPool& pool) const;
  void pay_attention(const Batch& batch, TokenPool& pool) const;
  void begin_states(const Batch& batch, TokenPool& pool);
  void save_states(const SequenceRows& sequence, int n_rows, const ScriptState& state, TokenPool& pool);
  ScriptState next(ScriptState state, std::int32_t token, std::int32_t gap = 0) const;
  void follow_rule(const ScriptState& state, std::int32_t last, float* row) const;
  void make_vectors(const Batch& batch, TokenPool& pool);
  void fill_row(const SequenceRows& sequence, int position, const ScriptState& state, TokenPool& pool,
                float* row) const;

  ForwardLimits limits_;
  AttentionWatch* watch_ = nullptr;
  std::vector<float> logits_;
  MadeVectors vectors_;
  const std::vector<SampleResult>* drawn_;
  std::vector<std::int32_t> tokens_;
  std::vector<ScriptState> states_;    // of the batch's sequences, before their rows
  std::vector<std::int32_t> written_;  // slots that the batch writes
};

}  // namespace imp::testing
