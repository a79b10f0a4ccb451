// The contract between a model and the hardware: memory, and the ops that a decoder is made of.
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
#include "backend/experts.h"
#include "backend/gemm.h"
#include "backend/gemm_registry.h"
#include "backend/kv_pool.h"
#include "backend/op_trace.h"
#include "backend/rows.h"
#include "backend/sampler.h"
#include "backend/step_graph_counts.h"

namespace imp {

enum class GatedActivation : std::uint8_t { silu, gelu_tanh };

// Raised with any change to what the bytes of a layout mean: packed weights outlive the process on disk.
inline constexpr int kLayoutRevision = 1;

// A weight matrix in device memory with the kernels chosen for it. Made and understood by one backend.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual const GemmProblem& problem() const noexcept = 0;
  virtual const GemmPlan& plan() const noexcept = 0;
  virtual std::size_t n_bytes() const noexcept = 0;
  // The n_bytes() in the plan's layout, where the process can read them, else none.
  virtual std::span<const std::byte> packed() const noexcept = 0;
};

// A vector of float32 in device memory (norm weights, biases).
class Vector {
 public:
  virtual ~Vector() = default;
  virtual const float* data() const noexcept = 0;  // an address on the device
  virtual int size() const noexcept = 0;
};

// Where a weight's bytes come from: whole rows of the file's own format, [n, k] with k contiguous.
struct WeightSource {
  std::string name;
  GemmProblem problem;
  std::function<void(std::int64_t first_row, std::int64_t n_rows, std::byte* out)> read;
  // Where it is set, for a backend that keeps_packed(), it takes the place of `read`: what Linear::packed() was for the
  // same plan, from `offset` on. Ranges begin at multiples of kPackedRangeBytes and end there or at the weight's end.
  std::function<void(std::uint64_t offset, std::span<std::byte> out)> read_packed = {};
};
inline constexpr std::int64_t kPackedRangeBytes = std::int64_t{1} << 18;

// A weight to load, and how it is to lie.
struct LinearRequest {
  WeightSource source;
  GemmPlan plan;
};

// Told while weights are loaded, on the thread that asked for them: bytes of theirs read since the last time. What it
// throws ends the loading.
using BytesRead = std::function<void(std::uint64_t n_bytes)>;

// One product of several that share their input.
struct LinearTerm {
  const Linear* weight = nullptr;
  const Vector* bias = nullptr;  // or none
  Rows out;                      // [x.n_rows, n]; does not overlap x
};

// Two products that share their input, of which one gates the other.
struct GatedTerm {
  const Linear* gate = nullptr;
  const Vector* gate_bias = nullptr;  // or none
  const Linear* up = nullptr;         // of the same shape
  const Vector* up_bias = nullptr;    // or none
  Rows out;                           // [x.n_rows, n]; does not overlap x
};

// How runs of elements are normalized.
struct Norm {
  const Vector* weight = nullptr;  // as long as a run; null: they are not
  float epsilon = 0;
  // The weight of a product that reads the result in the very next op, if one does: what it reads may be written along
  // with the result.
  const Linear* reader = nullptr;
};

// Rows of heads that are normalized, each for itself, and rotated.
struct RopeTerm {
  Rows x;  // [n, n_heads · head_dim]
  Norm norm;
};

// One product of several that share their input: each grouped row with the matrix of its expert.
struct ExpertTerm {
  std::span<const std::unique_ptr<Linear>> weights;  // [n_experts], all of one shape; types and plans may differ
  Rows out;                                          // [grouped rows, n]; does not overlap the input
};

// Everything a step will need, told before the first one, so that a step allocates nothing.
struct WorkspaceNeeds {
  int max_rows = 0;         // rows of any op's input
  int max_logits_rows = 0;  // rows of logits that are sampled or scored
  int max_sequences = 0;    // of a batch
  int vocab_size = 0;
  int max_context = 0;
  AttentionParams attention;           // the largest of any layer
  std::vector<const Linear*> weights;  // those of experts not among them
  ExpertRouting experts = {};
  std::vector<const Linear*> expert_weights = {};  // stacks of n_experts, one after the other
};

// What a step computes. It is told the batch as the device has it, which may have rows behind those it was given: of
// token 0 at position 0, each a sequence of its own with a block that no other has, and logits of their own where the
// last row's are wanted; but no more than max_rows().
class StepBody {
 public:
  virtual ~StepBody() = default;
  virtual int max_rows() const noexcept = 0;  // of a batch in which each has logits
  virtual void run(const Batch& batch, KvPool& pool) = 0;
};

// How often an op, or one of the kernels behind it, has run since the backend was made. Attention is told apart:
// attend_decode for sequences of one row, attend_prefill for those of more.
struct Launch {
  std::string_view name;
  std::uint64_t count = 0;
};

// One device. Ops are called from one thread at a time; each has finished, or is ordered before the next, when it
// returns. Unless said otherwise outputs do not overlap inputs, shapes are checked by the caller at load, and an op
// of no rows does nothing.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const DeviceCaps& caps() const noexcept = 0;
  virtual std::string device_name() const = 0;  // as people know it, with its instruction set
  virtual int n_threads() const noexcept = 0;
  virtual const GemmRegistry& registry() const noexcept = 0;

  // Bytes that weights, cache and scratch may take of the device's own memory; empty where that is the process's.
  virtual std::optional<std::uint64_t> own_memory_bytes() const { return std::nullopt; }

  // Whether the process can read its weights where they are: Linear::packed() has them, and read_packed() fills them
  // in.
  virtual bool keeps_packed() const noexcept = 0;

  // Memory. Each throws ResourceExhausted(NO_MEMORY) with what was asked for.
  virtual std::unique_ptr<Linear> load_linear(const WeightSource& source, const GemmPlan& plan) = 0;
  // Many at once, in their order; the sources are read from several threads.
  virtual std::vector<std::unique_ptr<Linear>> load_linears(std::span<const LinearRequest> requests,
                                                            const BytesRead& progress) = 0;
  virtual std::unique_ptr<Vector> load_vector(std::span<const float> values) = 0;
  virtual std::unique_ptr<KvPool> make_kv_pool(const KvGeometry& geometry) = 0;
  // What such a pool takes: as much for each block, and of some backends a part that is the same for any number of
  // them.
  virtual std::size_t kv_bytes(const KvGeometry& geometry) const = 0;
  // Activations [n_rows, width], 64-byte aligned rows, living as long as the backend's workspace.
  virtual Rows make_rows(int n_rows, int width) = 0;
  // Room for up to n_rows, likewise.
  virtual ExpertRows make_expert_rows(int n_rows, const ExpertRouting& routing) = 0;
  // Sizes the scratch of the ops for all weights named; called once per decoder before its first step. Scratch is
  // shared by the decoders of a backend and never shrinks.
  virtual void reserve(const WorkspaceNeeds& needs) = 0;
  // What a backend without scratch would hold after reserve(needs); of the weights only problem and plan are read.
  // Throws InvalidArgument for a layer that it cannot do, as reserve() does.
  virtual std::size_t scratch_bytes(const WorkspaceNeeds& needs) const = 0;
  virtual std::size_t scratch_bytes() const noexcept = 0;  // held now

  // Every op and kernel by name, those that never ran too. Callable from any thread.
  virtual std::vector<Launch> launches() const = 0;
  // From now on each op says when it ran, to a trace that outlives it; nullptr ends that. Called by the ops' thread.
  virtual void trace_ops(OpTrace* trace) noexcept = 0;

  // Sizes of batches of one row for each sequence whose first two steps take longer than those to come, so that
  // somebody takes them before anybody waits.
  virtual std::span<const int> batches_to_prepare() const noexcept { return {}; }

  // How the steps so far ran; empty where none is ever done again. Called by the ops' thread.
  virtual std::optional<StepGraphCounts> step_graphs() const noexcept { return std::nullopt; }

  // Evaluates a batch with ops that read its tokens, positions, sequences and rows of logits, and a cache. A backend
  // may keep what body did and do it again for a batch of the same shape and the same cache without calling it: so what
  // body does depends on nothing else that could change. Throws DeviceError(DEVICE_FAULT).
  virtual void run_step(const Batch& batch, KvPool& pool, StepBody& body) = 0;

  // out[i, :] = scale · table[tokens[i], :]; the table may be the output head itself (tied weights).
  virtual void embed(std::span<const std::int32_t> tokens, const Linear& table, float scale, Rows out) = 0;

  // out[i, :] = x[i, :] / sqrt(mean(x[i, :]²) + epsilon) · weight. out may be x.
  virtual void rms_norm(Rows x, const Norm& norm, Rows out) = 0;

  // x += y, and out as rms_norm(x) makes it.
  virtual void add_norm(Rows x, Rows y, const Norm& norm, Rows out) = 0;

  // Each term's out = x · weightᵀ + bias. The input is quantized once for all terms that read it alike.
  virtual void linear(Rows x, std::span<const LinearTerm> terms) = 0;

  // out = activation(x · gateᵀ + gate_bias) · (x · upᵀ + up_bias)
  virtual void gated_linear(Rows x, const GatedTerm& term, GatedActivation kind) = 0;

  // out[i, :] = dims/2 cosines, then dims/2 sines, of positions[i], both times magnitude.
  virtual void rope_angles(std::span<const std::int32_t> positions, const Rope& rope, Rows out) = 0;

  // Normalizes each head of each row of x [n, n_heads · head_dim] in place, and rotates it by its row of angles.
  virtual void rope(Rows x, int head_dim, const Norm& norm, const Rope& rope, Rows angles) = 0;

  // Writes rows of k and v [n, n_kv_heads · head_dim] as the K and V of their positions in one layer. Two sequences
  // share no block that is written.
  virtual void append_kv(KvPool& pool, int layer, std::span<const SequenceRows> sequences, Rows k, Rows v) = 0;

  // rope() of q and of k, and append_kv() of k and v; k is used up.
  virtual void rope_append(KvPool& pool, int layer, std::span<const SequenceRows> sequences, int head_dim,
                           const Rope& rope, Rows angles, const RopeTerm& q, const RopeTerm& k, Rows v) {
    this->rope(q.x, head_dim, q.norm, rope, angles);
    this->rope(k.x, head_dim, k.norm, rope, angles);
    append_kv(pool, layer, sequences, k.x, v);
  }

  // out[i, :] = attention of row i of q [n, n_heads · head_dim] over the keys at positions 0 … its own, within the
  // window; K and V of the rows themselves are in the pool already. A row's bits depend on its q and on those K and V
  // alone: keys are taken in splits of 256 aligned to position 0, merged in ascending order.
  virtual void attend(const KvPool& pool, int layer, std::span<const SequenceRows> sequences,
                      const AttentionParams& params, Rows q, Rows out) = 0;

  // out = activation(gate) · up, elementwise. out may be gate or up.
  virtual void gated_activation(GatedActivation kind, Rows gate, Rows up, Rows out) = 0;

  // Sends each row of scores [out.n_rows, n_experts] to its experts and fills in `out`. The scores are used up. A score
  // that is NaN makes its row's weights NaN.
  virtual void route_experts(Rows scores, const ExpertRouting& routing, const ExpertRows& out) = 0;

  // Each term's out[p, :] = x[row of p, :] · (its expert's weight)ᵀ for every grouped row p. The input is prepared once
  // per row for all of its experts, and each expert's weights are read once for all of its rows.
  virtual void linear_to_experts(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms) = 0;

  // out[p, :] = grouped[p, :] · (its expert's weight)ᵀ
  virtual void linear_of_experts(Rows grouped, const ExpertRows& rows, const ExpertTerm& term) = 0;

  // out[i, :] = sum of weight · grouped[place, :] over the experts of row i, by descending score.
  virtual void mix_experts(Rows grouped, const ExpertRows& rows, Rows out) = 0;

  // x += y
  virtual void add(Rows x, Rows y) = 0;

  // x[i, :] += sigmoid(gates[i, 0]) · y[i, :]
  virtual void add_gated(Rows x, Rows y, Rows gates) = 0;

  // x = cap · tanh(x / cap)
  virtual void soft_cap(Rows x, float cap) = 0;

  // out[i, :] = x[rows[i], :]
  virtual void gather_rows(Rows x, std::span<const std::int32_t> rows, Rows out) = 0;

  // Chooses a token for each request from its row of logits, as sampler.h and contracts say. logits are not changed.
  virtual void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) = 0;

  // Whether the host may begin a step before it knows what the one before has drawn: such a token is named in a batch
  // by drawn_token().
  virtual bool runs_ahead() const noexcept { return false; }

  // sample() in two halves, of which the first does not wait for the device. False, and nothing is begun, where that
  // cannot be. sample() and score() may be called in between. At most two are begun and not finished, and they are
  // finished in their order; of the requests only `candidates` is looked at then, and is empty where nobody wants them
  // any more.
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
