// The inner loops of the CPU's ops, as one table of function pointers per instruction set. They are plain functions on
// plain data: a file compiled for a wide instruction set must not instantiate templates that other files share.
//
// All tables compute the same bits. Call the functions inside ThreadPool::run, where denormals are zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/attention_splits.h"
#include "backend/kv_types.h"
#include "base/ceil_div.h"

namespace imp::cpu {

// Rows and caches are processed 16 elements at a time; storage is padded to a multiple of 16.
constexpr int kPanelTokens = 16;
constexpr int kSplitPanels = kSplitTokens / kPanelTokens;
// Queries per pass over a split's keys and values.
constexpr int kTileQueries = 32;

constexpr int padded_to_lanes(int n) {
  return round_up(n, 16);
}

// The queries of consecutive rows of one sequence, for n_heads heads of each of some neighbouring kv heads. Ordered by
// kv head, then row, then head; at most kTileQueries. A tile of several kv heads has all their query heads, so that
// these are contiguous.
struct AttentionTile {
  const float* q;  // first query of row 0; heads are head_dim apart
  std::ptrdiff_t row_stride;
  int n_rows;
  int n_kv_heads;
  int n_heads;         // per kv head
  int first_position;  // of row 0
  int head_dim;        // a multiple of 8
  float scale;
  float soft_cap;      // 0: none
  int window;          // 0: none
  const float* sinks;  // of these heads, or null
  // [n_rows], as SequenceRows::ends, or null: no row sees a key after its own
  const std::int32_t* ends;
  int ahead;  // as AttentionParams::ahead
  // [n_rows], as SequenceRows::starts, or null: cells are positions
  const std::int32_t* starts;

  constexpr int n_queries() const { return n_kv_heads * n_rows * n_heads; }
};

// Keys of a split, counted from its start: [begin, end), empty if begin >= end.
struct KeyRange {
  int begin, end;
};

// The keys and values of a split for the tile's first kv head, one address per panel of 16 tokens. K is [head_dim][16
// tokens], V is [16 tokens][padded head_dim]. For bfloat16 in pairs: K is [head_dim / 2][16 tokens][2], V is [8][padded
// head_dim][2 tokens]. For quantized types see kv_codes.inl. Panels that no query sees may be null.
struct SplitPanels {
  const void* k[kSplitPanels];
  const void* v[kSplitPanels];
  std::ptrdiff_t k_head_bytes;  // from a panel to that of the next kv head
  std::ptrdiff_t v_head_bytes;
  int first_position;
};

// The online softmax of some queries over some keys before the division: greatest score, sum of exp(score - greatest),
// and weighted values. The entries of queries that saw no key are undefined.
struct AttentionState {
  float* greatest;  // [queries]
  float* sum;       // [queries]
  float* values;    // [queries][padded head_dim]
};

// Distance between rows of scores. A power of two would map them to a few sets of the CPU cache.
constexpr int kScoreStride = kSplitTokens + kPanelTokens;

// One head's keys or values of consecutive tokens of one panel.
struct PanelRows {
  const float* first;  // [n_tokens][head_dim]
  std::ptrdiff_t stride;
  int head_dim;
  int first_token;
  int n_tokens;
};

// The parameters of xielu() in backend.h.
struct XieluParams {
  float positive;
  float negative;
  float slope;
  float largest;
};

// Consecutive rows of one sequence, for some columns of one value head's state. See delta_rule.h.
struct DeltaRun {
  const float* q;  // of the first row, as are the next five
  const float* k;
  const float* v;  // at the first column
  const float* decay;
  const float* beta;
  float* out;                 // at the first column
  std::ptrdiff_t qkv_stride;  // floats from row to row
  std::ptrdiff_t decay_stride;
  std::ptrdiff_t beta_stride;
  std::ptrdiff_t out_stride;
  int n_rows;     // at least 1
  int n_columns;  // at most kDeltaColumns
  int key_dim;
  int value_dim;      // floats from one row of a state to the next
  const float* from;  // the state before the rows, at the first column; null: zero
  float* to;          // the state after them, not `from`; null: not written
};
constexpr int kDeltaColumns = 32;

// Ops on cached keys of one type.
struct KeyOps {
  // Writes the rows into one head's panel.
  void (*append)(const PanelRows& rows, void* panel);
  // Writes the tile's queries in the form in which they are multiplied: kTileQueries · padded head_dim floats.
  void (*pack_queries)(const AttentionTile& tile, float* packed);
  // Sets scores[query][token of the split] to the scaled products of the packed queries with the keys of panels [begin,
  // end). Rows are kScoreStride apart.
  void (*score)(const AttentionTile& tile, const float* packed, const SplitPanels& panels, int begin, int end,
                float* scores);
};

// Ops on cached values of one type. seen[query] are the keys that it sees.
struct ValueOps {
  void (*append)(const PanelRows& rows, void* panel);
  // Turns the scores into weights, in the form in which they are multiplied, and sets the state's greatest and sum.
  void (*weigh)(const AttentionTile& tile, const KeyRange* seen, float* scores, const AttentionState& state);
  // Sets values[query] to the weighted sum of the values. `any` is the union of the ranges.
  void (*add)(const AttentionTile& tile, const SplitPanels& panels, const KeyRange* seen, KeyRange any,
              const float* weights, float* values);
};

// Order-preserving integers: a greater float has a greater key; -0 and +0 share one.
using LogitKey = std::int32_t;

struct RowScan {
  LogitKey greatest;
  std::int32_t index;  // the lowest index with that key
  bool finite;
};

// Logits are scanned in chunks of this size; their weights are summed in blocks of this size.
constexpr int kScanChunk = 64;
constexpr int kMassBlock = 1024;

struct SamplingOps {
  // chunk_greatest: null, or one key per started chunk.
  RowScan (*scan)(const float* row, int n, LogitKey* chunk_greatest);
  // Collects the ids whose key is at least `least`, ascending, with their values. Returns their number.
  int (*gather)(const float* row, int n, LogitKey least, std::int32_t* ids, float* values);
  // weights[i] = floor(exp((values[i] - greatest) / temperature) · 2^40)
  void (*weigh)(const float* values, int n, float greatest, float temperature, std::uint64_t* weights);
  // The sums of these weights per started block.
  void (*block_masses)(const float* values, int n, float greatest, float temperature, std::uint64_t* masses);
  // surprisals[i] = -log(weights[i] / total); undefined if the weight is 0.
  void (*surprisals)(const std::uint64_t* weights, int n, double total, double* surprisals);
};

// Some rows of a matrix, each with a weight.
struct WeightedRows {
  const float* first;     // row 0 of the matrix, from the first element needed
  std::ptrdiff_t stride;  // floats
  const std::int32_t* grouped_rows;
  const float* weights;
  int n_rows;
};

// The positions of one row, and the planes by which its pairs rotate.
struct PlanePositions {
  const std::int32_t* first;   // in the first plane
  std::ptrdiff_t stride;       // from plane to plane
  const std::uint8_t* planes;  // of each pair
};

struct CpuOps {
  // out = x / sqrt(mean(x²) + epsilon) · weight; without a weight, which is null, nothing is multiplied
  void (*rms_norm)(const float* x, const float* weight, int n, float epsilon, float* out);
  // out = (x - mean) / sqrt(variance + epsilon) · weight + bias, which may be null
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int n, float epsilon, float* out);
  // out = n_pairs cosines, then n_pairs sines, of position · frequencies, times magnitude
  void (*rope_angles)(std::int32_t position, const double* frequencies, int n_pairs, float magnitude, float* out);
  // As rope_angles(), where each pair has a position.
  void (*rope_planes)(const PlanePositions& at, const double* frequencies, int n_pairs, float magnitude, float* out);
  // Rotates the first 2 · n_pairs elements of a head in place: adjacent pairs, or element i with i + n_pairs.
  void (*rope_adjacent)(float* head, const float* angles, int n_pairs);
  void (*rope_halves)(float* head, const float* angles, int n_pairs);
  void (*silu)(const float* gate, const float* up, int n, float* out);
  void (*gelu_tanh)(const float* gate, const float* up, int n, float* out);
  void (*gated_gelu_erf)(const float* gate, const float* up, int n, float* out);
  // ClampedSilu in backend.h
  void (*clamped_silu)(const float* gate, const float* up, int n, float limit, float slope, float* out);
  void (*add)(float* x, const float* y, int n);
  void (*add_gated)(float* x, const float* y, int n, float gate);  // x += sigmoid(gate) · y
  void (*scale)(float* x, int n, float factor);
  void (*clamp)(const float* x, int n, float low, float high, float* out);
  void (*standardize)(float* x, const float* mean, const float* factors, int n);  // x = (x - mean) · factors
  // Activations without a gate, in place.
  void (*plain_gelu_tanh)(float* x, int n);
  void (*gelu_erf)(float* x, int n);
  void (*relu_squared)(float* x, int n);
  void (*xielu)(float* x, int n, const XieluParams& params);
  void (*tanh)(float* x, int n);
  float (*dot)(const float* x, const float* y, int n);
  void (*soft_cap)(float* x, int n, float cap);
  void (*softmax)(float* x, int n);                               // in place
  void (*multiply_sigmoid)(float* x, const float* gates, int n);  // x *= sigmoid(gates)
  // out = silu(sum of weight · row); row t's weights are t · weight_stride after the first's.
  void (*short_conv)(const float* const* rows, const float* weight, std::ptrdiff_t weight_stride, int n_rows, int n,
                     float* out);
  void (*scale_to_length)(float* x, int n, float epsilon, float length);  // x *= length / sqrt(sum(x²) + epsilon)
  // alpha = exp(decay_rates · softplus(alpha + dt_bias)), beta = sigmoid(beta)
  void (*delta_gates)(float* alpha, float* beta, const float* decay_rates, const float* dt_bias, int n);
  void (*delta_rule)(const DeltaRun& run);
  // out = sum of weight · row, in the given order.
  void (*mix)(const WeightedRows& rows, int n, float* out);

  KeyOps keys[kKvTypes];  // by KvType
  ValueOps values[kKvTypes];
  // Reverses the rotation of rotated types, in place.
  void (*rotate_back)(float* head, int head_dim);
  const KeyOps& keys_of(KvType type) const noexcept { return keys[static_cast<int>(type)]; }
  const ValueOps& values_of(KvType type) const noexcept { return values[static_cast<int>(type)]; }
  // into = the softmax over the keys of both, for queries that see keys of the split at split_position. Copies the
  // first split that a query sees.
  void (*merge)(const AttentionTile& tile, int split_position, const AttentionState& split, const AttentionState& into);
  // out = values / (sum + the weight of the head's sink, if any); query (row, head) at out + row · out_stride + head ·
  // head_dim
  void (*finish)(const AttentionTile& tile, const AttentionState& state, float* out, std::ptrdiff_t out_stride);

  SamplingOps sampling;
};

// Each is compiled for its instruction set, if the processor's family has it.
extern const CpuOps kCpuOpsGeneric;
extern const CpuOps kCpuOpsAvx2;
extern const CpuOps kCpuOpsAvx2Vnni;
extern const CpuOps kCpuOpsAvx512;
extern const CpuOps kCpuOpsAvx512Vnni;
extern const CpuOps kCpuOpsAvx512Bf16;
extern const CpuOps kCpuOpsNeonDot;

}  // namespace imp::cpu
