// The interface between a model and the hardware: memory, and the ops of a decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/attention.h"
#include "backend/batch.h"
#include "backend/delta_rule.h"
#include "backend/experts.h"
#include "backend/gemm.h"
#include "backend/gemm_registry.h"
#include "backend/kv_pool.h"
#include "backend/op_names.h"
#include "backend/op_terms.h"
#include "backend/op_trace.h"
#include "backend/rows.h"
#include "backend/sampler.h"
#include "backend/step_graph_counts.h"
#include "backend/weights.h"
#include "base/error.h"

namespace imp {

// A logit that is finite, as the sampler requires, and whose token has no chance against any other.
inline constexpr float kUnlikelyLogit = -1e30F;
// The most clusters that a row uses in clustered_product().
inline constexpr int kMaxClustersUsed = 256;

// All that a step will need, given before the first one so that a step allocates nothing.
struct WorkspaceNeeds {
  int max_rows = 0;         // rows of any op's input
  int max_logits_rows = 0;  // rows of logits that are sampled or scored
  int max_sequences = 0;    // of a batch
  int vocab_size = 0;
  int max_context = 0;
  std::vector<Op> ops = {};                 // the optional ones that the model uses
  AttentionParams attention = {};           // the largest of any layer
  std::vector<const Linear*> weights = {};  // without those of experts
  ExpertRouting experts = {};
  std::vector<const Linear*> expert_weights = {};  // stacks of n_experts, one after the other
};

// What a step computes. A backend may append padding rows to the batch, up to max_rows(). Each has token 0 at position
// 0, in a sequence and a block of its own; it has logits if the last row has.
class StepBody {
 public:
  virtual ~StepBody() = default;
  virtual int max_rows() const noexcept = 0;  // rows of a batch in which each row has logits
  virtual void run(const Batch& batch, KvPool& pool) = 0;
};

// How often an op, or a kernel behind it, has run. Attention counts twice: attend_decode for sequences with one row,
// attend_prefill for the others.
struct Launch {
  std::string_view name;
  std::uint64_t count = 0;
};

// One device. One thread at a time calls the ops. When an op returns it has finished, or the device orders it before
// the next. Unless stated otherwise, outputs do not overlap inputs, the caller has checked shapes at load, and an op on
// zero rows does nothing.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceCaps& caps() const noexcept = 0;
  virtual std::string device_name() const = 0;  // its marketing name, with its instruction set
  virtual int n_threads() const noexcept = 0;
  virtual const GemmRegistry& registry() const noexcept = 0;

  // Ends the threads that compute, so that the process can fork: one thread must be left then. False if the device
  // does not outlive a fork. begin() starts the threads again, unless they run. It throws as making the backend does.
  virtual bool rest() { return false; }
  virtual void begin() {}

  // Bytes of device memory that weights, cache and scratch may take; empty if the device uses the process's memory.
  virtual std::optional<std::uint64_t> own_memory_bytes() const { return std::nullopt; }

  // Whether the process can read the weights in place: Linear::packed() returns them, and read_packed() fills them in.
  virtual bool keeps_packed() const noexcept = 0;

  // Memory. Each call throws ResourceExhausted(NO_MEMORY) with the requested size.
  virtual std::unique_ptr<Linear> load_linear(const WeightSource& source, const GemmPlan& plan) = 0;
  // Loads several weights in order; several threads read the sources.
  virtual std::vector<std::unique_ptr<Linear>> load_linears(std::span<const LinearRequest> requests,
                                                            const BytesRead& progress) = 0;
  virtual std::unique_ptr<Vector> load_vector(std::span<const float> values) = 0;
  virtual std::unique_ptr<KvPool> make_kv_pool(const KvGeometry& geometry) = 0;
  // Bytes of such a pool: a fixed part, which may be zero, and an equal part for each block.
  virtual std::size_t kv_bytes(const KvGeometry& geometry) const = 0;
  // Activations [n_rows, width], 64-byte aligned rows, living as long as the backend's workspace.
  virtual Rows make_rows(int n_rows, int width) = 0;
  // Up to n_rows rows, otherwise as above.
  virtual ExpertRows make_expert_rows(int n_rows, const ExpertRouting& routing) = 0;
  // Sizes the scratch of the ops for these weights. Called once per decoder before its first step. The decoders of a
  // backend share the scratch, which never shrinks.
  virtual void reserve(const WorkspaceNeeds& needs) = 0;
  // The scratch that a backend would hold after reserve(needs). Reads only the problem and the plan of each weight.
  // Throws InvalidArgument for an unsupported layer, as reserve() does.
  virtual std::size_t scratch_bytes(const WorkspaceNeeds& needs) const = 0;
  virtual std::size_t scratch_bytes() const noexcept = 0;  // held now

  // Every op and kernel that the backend has, by name, with those that never ran. Any thread may call it.
  virtual std::vector<Launch> launches() const = 0;
  // Records the time of each op in `trace`, which must outlive it; nullptr stops recording. Called by the thread of the
  // ops.
  virtual void trace_ops(OpTrace* trace) noexcept = 0;

  // Decode batch sizes whose first two steps are slow (graph capture). Run them before any request waits.
  virtual std::span<const int> batches_to_prepare() const noexcept { return {}; }

  // How steps ran so far; empty if the backend captures no graphs. Called by the thread of the ops.
  virtual std::optional<StepGraphCounts> step_graphs() const noexcept { return std::nullopt; }

  // Runs a step. A backend may capture the ops of `body` and replay them, without calling `body`, for a later batch of
  // the same shape and cache. So `body` must depend on nothing else that changes. Throws DeviceError(DEVICE_FAULT).
  virtual void run_step(const Batch& batch, KvPool& pool, StepBody& body) = 0;

  // out[i, :] = scale · table[tokens[i], :]; the table may be the output head itself (tied weights).
  virtual void embed(std::span<const std::int32_t> tokens, const Linear& table, float scale, Rows out) = 0;

  // out[i, :] = x[i, :] / sqrt(mean(x[i, :]²) + epsilon) · weight. out may be x.
  virtual void rms_norm(Rows x, const Norm& norm, Rows out) = 0;

  // x += y, then out = rms_norm(x).
  virtual void add_norm(Rows x, Rows y, const Norm& norm, Rows out) = 0;

  // Each term's out = x · weightᵀ + bias. Terms that need the input in the same format share its preparation
  // (quantization).
  virtual void linear(Rows x, std::span<const LinearTerm> terms) = 0;

  // out = activation(x · gateᵀ + gate_bias) · (x · upᵀ + up_bias)
  virtual void gated_linear(Rows x, const GatedTerm& term, GatedActivation kind) = 0;

  // out[i, :] = dims/2 cosines, then dims/2 sines of the row's positions, each times magnitude. `positions` is
  // [planes, n]: pair j rotates by the position of plane planes[j], which a backend may lack (Op::rope_planes), or if
  // there is one plane, by that of this one.
  virtual void rope_angles(std::span<const std::int32_t> positions, const Rope& rope, Rows out) = 0;

  // Normalizes each head of each row of x [n, n_heads · head_dim] in place, then rotates it by its row of angles.
  virtual void rope(Rows x, int head_dim, const Norm& norm, const Rope& rope, Rows angles) = 0;

  // Writes rows of k and v [n, n_kv_heads · head_dim] to their positions in one layer of the cache. No two sequences
  // share a block that is written.
  virtual void append_kv(KvPool& pool, int layer, std::span<const SequenceRows> sequences, Rows k, Rows v) = 0;

  // rope() on q and k, and append_kv() of k and v. Overwrites k.
  virtual void rope_append(KvPool& pool, int layer, std::span<const SequenceRows> sequences, int head_dim,
                           const Rope& rope, Rows angles, const RopeTerm& q, const RopeTerm& k, Rows v) {
    this->rope(q.x, head_dim, q.norm, rope, angles);
    this->rope(k.x, head_dim, k.norm, rope, angles);
    append_kv(pool, layer, sequences, k.x, v);
  }

  // Grouped-query attention. out[i, :] = attention of row i of q [n, n_heads · head_dim] over the keys at positions 0 …
  // its own, within the window; the pool already holds K and V of these rows. The window of a row of a sequence with
  // `starts` begins there. A row of a sequence with `ends` also sees the keys behind its own, up to `ahead` of them and
  // up to its end; a backend may lack this (Op::attend_ahead). The bits of a row depend only on its q and on those K
  // and V: keys are processed in splits of 256 aligned to position 0, merged in ascending order.
  virtual void attend(const KvPool& pool, int layer, std::span<const SequenceRows> sequences,
                      const AttentionParams& params, Rows q, Rows out) = 0;

  // out = activation(gate) · up, elementwise. out may be gate or up.
  virtual void gated_activation(GatedActivation kind, Rows gate, Rows up, Rows out) = 0;

  // Routes each row of scores [out.n_rows, n_experts] to its experts and fills `out`. Overwrites the scores. A NaN
  // score makes the weights of its row NaN.
  virtual void route_experts(Rows scores, const ExpertRouting& routing, const ExpertRows& out) = 0;

  // The first products of experts (gate, up): the input is the rows of the batch. For every grouped row p each term's
  // out[p, :] = x[row of p, :] · (its expert's weight)ᵀ + its expert's bias. Each row's input is prepared once for all
  // its experts, and each expert's weights are read once for all its rows.
  virtual void expert_linear_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms) = 0;

  // The last product of experts (down): the input is the grouped rows. out[p, :] = grouped[p, :] · (its expert's
  // weight)ᵀ + its expert's bias
  virtual void expert_linear_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term) = 0;

  // out[i, :] = sum of weight · grouped[its grouped row, :] over the experts of row i, by descending score.
  virtual void mix_experts(Rows grouped, const ExpertRows& rows, Rows out) = 0;

  // x += y
  virtual void add(Rows x, Rows y) = 0;

  // x[i, :] += sigmoid(gates[i, 0]) · y[i, :]
  virtual void add_gated(Rows x, Rows y, Rows gates) = 0;

  // The ops of kOptionalOps. A backend that lacks one refuses WorkspaceNeeds that name it, and does not list it in
  // launches().

  // The attention that the one query of `sequence` pays to each of some keys: into[i] = max(into[i], weight of key
  // first_key + i), over all heads. A head's weights are the softmax of its scaled products with these keys alone, in
  // ascending order, and then each is the mean of kMassPool neighbours, with itself in the middle and zeros beyond the
  // ends. All keys are at positions before the query's. `into` is in the host's memory and not negative.
  virtual void attention_mass(const KvPool& /*pool*/, int /*layer*/, const SequenceRows& /*sequence*/,
                              const AttentionParams& /*params*/, Rows /*q*/, int /*first_key*/,
                              std::span<float> /*into*/) {
    IMP_CHECK(false);
  }

  // x = factor · x
  virtual void scale(Rows /*x*/, float /*factor*/) { IMP_CHECK(false); }

  // out = x, at least `low` and at most `high`, elementwise. A NaN stays one. out may be x.
  virtual void clamp(Rows /*x*/, float /*low*/, float /*high*/, Rows /*out*/) { IMP_CHECK(false); }

  // x[i, :] = (x[i, :] - mean) · factors
  virtual void standardize(Rows /*x*/, const Vector& /*mean*/, const Vector& /*factors*/) { IMP_CHECK(false); }

  // Each run of run_length elements of each row by itself: (x - mean) / sqrt(variance + epsilon) · weight + bias.
  // Weight and bias are as wide as x. out may be x.
  virtual void layer_norm(Rows /*x*/, int /*run_length*/, const Norm& /*norm*/, Rows /*out*/) { IMP_CHECK(false); }

  // x = activation(x). The parameters are those of xielu.
  virtual void activate(PlainActivation /*kind*/, const XieluParams& /*params*/, Rows /*x*/) { IMP_CHECK(false); }

  // out = the gate with limits, elementwise. out may be gate or up.
  virtual void clamped_activation(const ClampedSilu& /*kind*/, Rows /*gate*/, Rows /*up*/, Rows /*out*/) {
    IMP_CHECK(false);
  }

  // Multiplies each row by the factor of its position.
  virtual void scale_by_position(Rows /*x*/, std::span<const std::int32_t> /*positions*/,
                                 const PositionScale& /*scale*/) {
    IMP_CHECK(false);
  }

  // out = each run of run_length elements of each row of x, normalized by itself. Without a weight the result is not
  // multiplied. out may be x.
  virtual void norm_heads(Rows /*x*/, int /*run_length*/, const Norm& /*norm*/, Rows /*out*/) { IMP_CHECK(false); }

  // Multiplies the weight of each chosen expert by the expert's own factor [n_experts].
  virtual void scale_experts(const ExpertRows& /*rows*/, const Vector& /*factors*/) { IMP_CHECK(false); }
  // x *= sigmoid(gates), elementwise
  virtual void multiply_sigmoid(Rows /*x*/, Rows /*gates*/) { IMP_CHECK(false); }

  // rms_norm() of each run of the weight's length by itself, times silu(gates). out may be x.
  virtual void rms_norm_gated(Rows /*x*/, const Norm& /*norm*/, Rows /*gates*/, Rows /*out*/) { IMP_CHECK(false); }

  // A causal convolution of each channel, with silu: out[i, c] = silu(sum of weight[t, c] · x[i - taps + 1 + t, c] over
  // the taps t). Rows of the same sequence before the batch come from its state in `layer` of the pool; what the next
  // rows need goes to its state_saves. The weight is [taps, x.width].
  virtual void short_conv(KvPool& /*pool*/, int /*layer*/, std::span<const SequenceRows> /*sequences*/, Rows /*x*/,
                          const Vector& /*weight*/, Rows /*out*/) {
    IMP_CHECK(false);
  }

  // The gated delta rule over the rows of each sequence in turn: it begins with the sequence's state in `layer` of the
  // pool, and writes the states after some rows to state_saves. out [n, value_width()]. The bits of a row depend only
  // on the rows of its sequence up to it, not on how they are divided into batches.
  virtual void delta_rule(KvPool& /*pool*/, int /*layer*/, std::span<const SequenceRows> /*sequences*/,
                          const DeltaRule& /*rule*/, const DeltaRows& /*rows*/, Rows /*out*/) {
    IMP_CHECK(false);
  }

  // out[i, columns[j]] = x[i, j]; the other columns of out get kUnlikelyLogit.
  virtual void spread_columns(Rows /*x*/, std::span<const std::int32_t> /*columns*/, Rows /*out*/) { IMP_CHECK(false); }

  // Products of each row of x with some rows of the table: those of the n_used clusters with the greatest scores (of
  // equal ones the first). Cluster c of a row has scores[i, c], and the rows of the table at c · size and after of
  // `rows`, where size is how many each has. out[i, t] = x[i, :] · table[t, :]; the other columns of out get
  // kUnlikelyLogit.
  virtual void clustered_product(Rows /*x*/, Rows /*scores*/, int /*n_used*/, std::span<const std::int32_t> /*rows*/,
                                 const Linear& /*table*/, Rows /*out*/) {
    IMP_CHECK(false);
  }

  // Copies rows from the host: out = values [out.n_rows, out.width].
  virtual void write_rows(std::span<const float> /*values*/, Rows /*out*/) { IMP_CHECK(false); }

  // out[i, :] = the mean of the rows of x in runs[i], which are added in ascending order.
  virtual void mean_rows(Rows /*x*/, std::span<const RowRun> /*runs*/, Rows /*out*/) { IMP_CHECK(false); }

  // x = cap · tanh(x / cap)
  virtual void soft_cap(Rows x, float cap) = 0;

  // out[i, :] = x[rows[i], :]
  virtual void gather_rows(Rows x, std::span<const std::int32_t> rows, Rows out) = 0;

  // Samples a token for each request from its row of logits, as sampler.h describes. Leaves the logits unchanged.
  virtual void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) = 0;

  // Whether the host may start a step before it knows the tokens that the previous step drew. A batch then contains
  // drawn_token() in their place.
  virtual bool runs_ahead() const noexcept { return false; }

  // sample() in two halves; begin_sample() does not wait for the device. If it returns false, nothing has begun.
  // sample() and score() may run in between. At most two may be in flight, and they finish in order. finish_sample()
  // reads only `candidates` of the requests, which is empty if nobody needs them any more.
  virtual bool begin_sample(Rows /*logits*/, std::span<const SampleRequest> /*requests*/) { return false; }
  virtual void finish_sample(std::span<const SampleRequest> /*requests*/, std::span<SampleResult> /*results*/) {}

  // The log-probability (of the raw logits) of each request's token.
  virtual void score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) = 0;

  // Copies one row of logits to the host; out holds logits.width values.
  virtual void read_row(Rows logits, int row, std::span<float> out) = 0;

  // Copies block `from` to block `to` in every layer, K and V.
  virtual void copy_block(KvPool& pool, std::int32_t from, std::int32_t to) = 0;
};

}  // namespace imp
