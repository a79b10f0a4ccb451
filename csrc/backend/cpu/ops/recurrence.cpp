// The convolution in pieces of rows; the delta rule in columns of each head's state, over all rows of a sequence.
#include "backend/cpu/ops/recurrence.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/backend.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

constexpr int kPieceChannels = 2048;
constexpr std::array<float, kPieceChannels> kZeros{};

const float* at_row(Rows x, int row) {
  return x.data + row * x.stride;
}

const SequenceRows& sequence_of(std::span<const SequenceRows> sequences, int row) {
  return *std::prev(std::ranges::upper_bound(sequences, row, {}, &SequenceRows::first_row));
}

// The convolution's inputs of one sequence, from `channel` on: those of the batch, and those before it from the state.
class ConvInputs {
 public:
  ConvInputs(const RecurrentLayer& at, const SequenceRows& sequence, Rows x, int channel)
      : geometry_(at.pool.geometry().state), sequence_(sequence), x_(x), channel_(channel) {
    if (sequence.state != kNoSlot) before_ = at.pool.conv_state(at.layer, sequence.state) + channel;
  }
  // The index is relative to the sequence's first row in the batch. Rows with a negative index come from the state.
  // At most kPieceChannels channels of a row are valid.
  const float* row(int i) const {
    if (i >= 0) return at_row(x_, sequence_.first_row + i) + channel_;
    if (before_ == nullptr) return kZeros.data();
    return before_ + std::ptrdiff_t{geometry_.conv_taps + i} * geometry_.conv_width;
  }

 private:
  const StateGeometry& geometry_;
  const SequenceRows& sequence_;
  Rows x_;
  int channel_;
  const float* before_ = nullptr;
};

void save_conv_states(ThreadPool& threads, const RecurrentLayer& at, Rows x) {
  const StateGeometry& geometry = at.pool.geometry().state;
  const int pieces = ceil_div(x.width, kPieceChannels);
  threads.run(static_cast<int>(at.sequences.size()) * pieces, [&](int task, int) {
    const SequenceRows& sequence = at.sequences[static_cast<std::size_t>(task / pieces)];
    const int channel = task % pieces * kPieceChannels;
    const ConvInputs inputs(at, sequence, x, channel);
    for (const StateSave& save : sequence.state_saves) {
      for (int t = 0; t < geometry.conv_taps; ++t) {
        float* const to = at.pool.conv_state(at.layer, save.slot) + std::ptrdiff_t{t} * geometry.conv_width + channel;
        std::copy_n(inputs.row(save.n_rows - geometry.conv_taps + t), std::min(kPieceChannels, x.width - channel), to);
      }
    }
  });
}

// The work of one task: some columns of a value head's state, for one sequence.
class DeltaColumns {
 public:
  DeltaColumns(const RecurrentLayer& at, const DeltaRule& rule, const SequenceRows& sequence, int head, int column)
      : at_(at), rule_(rule), sequence_(sequence), n_columns_(std::min(kDeltaColumns, rule.value_dim - column)) {
    offset_ = std::ptrdiff_t{head} * rule.key_dim * rule.value_dim + column;
  }

  void run(const CpuOps& ops, DeltaRun run) const {
    run.n_columns = n_columns_;
    run.key_dim = rule_.key_dim;
    run.value_dim = rule_.value_dim;
    run.from = sequence_.state == kNoSlot ? nullptr : state(sequence_.state);
    int done = 0;
    for (const StateSave& save : sequence_.state_saves) {
      run.to = state(save.slot);
      run.n_rows = save.n_rows - done;
      if (run.n_rows > 0) {
        ops.delta_rule(run);
      } else {
        copy(run.from, run.to);
      }
      advance(run, run.n_rows);
      run.from = run.to;
      done = save.n_rows;
    }
    run.to = nullptr;
    run.n_rows = sequence_.n_rows - done;
    if (run.n_rows > 0) ops.delta_rule(run);
  }

 private:
  float* state(std::int32_t slot) const { return at_.pool.delta_state(at_.layer, slot) + offset_; }

  static void advance(DeltaRun& run, int n_rows) {
    run.q += n_rows * run.qkv_stride;
    run.k += n_rows * run.qkv_stride;
    run.v += n_rows * run.qkv_stride;
    run.decay += n_rows * run.decay_stride;
    run.beta += n_rows * run.beta_stride;
    run.out += n_rows * run.out_stride;
  }

  void copy(const float* from, float* to) const {
    for (int i = 0; i < rule_.key_dim; ++i) {
      const std::ptrdiff_t row = std::ptrdiff_t{i} * rule_.value_dim;
      std::copy_n(from == nullptr ? kZeros.data() : from + row, n_columns_, to + row);
    }
  }

  const RecurrentLayer& at_;
  const DeltaRule& rule_;
  const SequenceRows& sequence_;
  int n_columns_;
  std::ptrdiff_t offset_;  // of the columns in a layer's state
};

void prepare_rows(const CpuOps& ops, ThreadPool& threads, const DeltaRule& rule, const DeltaRows& rows) {
  const float q_length = 1.0F / std::sqrt(static_cast<float>(rule.key_dim));
  constexpr int kRowsPerTask = 4;
  threads.run(ceil_div(rows.qkv.n_rows, kRowsPerTask), [&](int task, int) {
    const int end = std::min(rows.qkv.n_rows, (task + 1) * kRowsPerTask);
    for (int row = task * kRowsPerTask; row < end; ++row) {
      float* const qk = rows.qkv.data + row * rows.qkv.stride;
      for (int head = 0; head < 2 * rule.n_key_heads; ++head) {
        ops.scale_to_length(qk + std::ptrdiff_t{head} * rule.key_dim, rule.key_dim, kDeltaLengthEpsilon,
                            head < rule.n_key_heads ? q_length : 1.0F);
      }
      ops.delta_gates(rows.alpha.data + row * rows.alpha.stride, rows.beta.data + row * rows.beta.stride,
                      rows.decay_rates->data(), rows.dt_bias->data(), rule.n_value_heads);
    }
  });
}

}  // namespace

void run_short_conv(const CpuOps& ops, ThreadPool& threads, const RecurrentLayer& at, Rows x, const float* weight,
                    Rows out) {
  const int n_taps = at.pool.geometry().state.conv_taps + 1;
  IMP_CHECK(n_taps <= kMaxConvTaps);
  const int pieces = ceil_div(x.width, kPieceChannels);
  threads.run(x.n_rows * pieces, [&](int task, int) {
    const int row = task / pieces;
    const int channel = task % pieces * kPieceChannels;
    const SequenceRows& sequence = sequence_of(at.sequences, row);
    const ConvInputs inputs(at, sequence, x, channel);
    const float* taps[kMaxConvTaps];
    for (int t = 0; t < n_taps; ++t) taps[t] = inputs.row(row - sequence.first_row - n_taps + 1 + t);
    ops.short_conv(taps, weight + channel, x.width, n_taps, std::min(kPieceChannels, x.width - channel),
                   out.data + row * out.stride + channel);
  });
  save_conv_states(threads, at, x);
}

void run_delta_rule(const CpuOps& ops, ThreadPool& threads, const RecurrentLayer& at, const DeltaRule& rule,
                    const DeltaRows& rows, Rows out) {
  IMP_CHECK(rule.key_dim <= kMaxDeltaKeyDim);
  prepare_rows(ops, threads, rule, rows);
  const int per_head = ceil_div(rule.value_dim, kDeltaColumns);
  const int per_sequence = rule.n_value_heads * per_head;
  threads.run(static_cast<int>(at.sequences.size()) * per_sequence, [&](int task, int) {
    const SequenceRows& sequence = at.sequences[static_cast<std::size_t>(task / per_sequence)];
    const int head = task % per_sequence / per_head;
    const int column = task % per_head * kDeltaColumns;
    const float* const qkv = at_row(rows.qkv, sequence.first_row);
    const std::ptrdiff_t key = std::ptrdiff_t{rule.key_head_of(head)} * rule.key_dim;
    const std::ptrdiff_t value = std::ptrdiff_t{head} * rule.value_dim + column;
    DeltaColumns(at, rule, sequence, head, column)
        .run(ops, {.q = qkv + key,
                   .k = qkv + rule.key_width() + key,
                   .v = qkv + 2 * rule.key_width() + value,
                   .decay = at_row(rows.alpha, sequence.first_row) + head,
                   .beta = at_row(rows.beta, sequence.first_row) + head,
                   .out = out.data + sequence.first_row * out.stride + value,
                   .qkv_stride = rows.qkv.stride,
                   .decay_stride = rows.alpha.stride,
                   .beta_stride = rows.beta.stride,
                   .out_stride = out.stride,
                   .n_rows = 0,
                   .n_columns = 0,
                   .key_dim = 0,
                   .value_dim = 0,
                   .from = nullptr,
                   .to = nullptr});
  });
}

}  // namespace imp::cpu
