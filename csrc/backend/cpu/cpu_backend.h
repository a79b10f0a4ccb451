// The CPU as a device: memory, threads and ops.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/attention_mass.h"
#include "backend/cpu/gemm/gemm_runner.h"
#include "backend/cpu/ops/cpu_ops.h"
#include "backend/cpu/sampling/sampling.h"
#include "backend/make_backend.h"
#include "backend/op_names.h"
#include "base/arena.h"
#include "base/thread_pool.h"

namespace imp::cpu {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const DeviceCaps& caps, const DeviceOptions& options);

  const DeviceCaps& caps() const noexcept override { return registry_.caps(); }
  std::string device_name() const override;
  int n_threads() const noexcept override { return threads_.n_threads(); }
  const GemmRegistry& registry() const noexcept override { return registry_; }
  bool rest() override {
    threads_.rest();
    return true;
  }
  void begin() override { threads_.begin(); }
  bool keeps_packed() const noexcept override { return true; }

  std::unique_ptr<Linear> load_linear(const WeightSource& source, const GemmPlan& plan) override;
  std::vector<std::unique_ptr<Linear>> load_linears(std::span<const LinearRequest> requests,
                                                    const BytesRead& progress) override;
  std::unique_ptr<Vector> load_vector(std::span<const float> values) override;
  std::unique_ptr<KvPool> make_kv_pool(const KvGeometry& geometry) override;
  std::size_t kv_bytes(const KvGeometry& geometry) const override;
  Rows make_rows(int n_rows, int width) override;
  ExpertRows make_expert_rows(int n_rows, const ExpertRouting& routing) override;
  void reserve(const WorkspaceNeeds& needs) override;
  std::size_t scratch_bytes(const WorkspaceNeeds& needs) const override;
  std::size_t scratch_bytes() const noexcept override;
  std::vector<Launch> launches() const override;
  void trace_ops(OpTrace* trace) noexcept override { trace_ = trace; }

  void run_step(const Batch& batch, KvPool& pool, StepBody& body) override { body.run(batch, pool); }
  void embed(std::span<const std::int32_t> tokens, const Linear& table, float scale, Rows out) override;
  void rms_norm(Rows x, const Norm& norm, Rows out) override;
  void add_norm(Rows x, Rows y, const Norm& norm, Rows out) override;
  void linear(Rows x, std::span<const LinearTerm> terms) override;
  void gated_linear(Rows x, const GatedTerm& term, GatedActivation kind) override;
  void rope_angles(std::span<const std::int32_t> positions, const Rope& rope, Rows out) override;
  void rope(Rows x, int head_dim, const Norm& norm, const Rope& rope, Rows angles) override;
  void append_kv(KvPool& pool, int layer, std::span<const SequenceRows> sequences, Rows k, Rows v) override;
  void attend(const KvPool& pool, int layer, std::span<const SequenceRows> sequences, const AttentionParams& params,
              Rows q, Rows out) override;
  void attention_mass(const KvPool& pool, int layer, const SequenceRows& sequence, const AttentionParams& params,
                      Rows q, int first_key, std::span<float> into) override;
  void gated_activation(GatedActivation kind, Rows gate, Rows up, Rows out) override;
  void route_experts(Rows scores, const ExpertRouting& routing, const ExpertRows& out) override;
  void expert_linear_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms) override;
  void expert_linear_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term) override;
  void mix_experts(Rows grouped, const ExpertRows& rows, Rows out) override;
  void add(Rows x, Rows y) override;
  void add_gated(Rows x, Rows y, Rows gates) override;
  void scale(Rows x, float factor) override;
  void clamp(Rows x, float low, float high, Rows out) override;
  void standardize(Rows x, const Vector& mean, const Vector& factors) override;
  void layer_norm(Rows x, int run_length, const Norm& norm, Rows out) override;
  void activate(PlainActivation kind, const imp::XieluParams& params, Rows x) override;
  void clamped_activation(const ClampedSilu& kind, Rows gate, Rows up, Rows out) override;
  void scale_by_position(Rows x, std::span<const std::int32_t> positions, const PositionScale& scale) override;
  void norm_heads(Rows x, int run_length, const Norm& norm, Rows out) override;
  void scale_experts(const ExpertRows& rows, const Vector& factors) override;
  void multiply_sigmoid(Rows x, Rows gates) override;
  void rms_norm_gated(Rows x, const Norm& norm, Rows gates, Rows out) override;
  void short_conv(KvPool& pool, int layer, std::span<const SequenceRows> sequences, Rows x, const Vector& weight,
                  Rows out) override;
  void delta_rule(KvPool& pool, int layer, std::span<const SequenceRows> sequences, const DeltaRule& rule,
                  const DeltaRows& rows, Rows out) override;
  void soft_cap(Rows x, float cap) override;
  void gather_rows(Rows x, std::span<const std::int32_t> rows, Rows out) override;
  void spread_columns(Rows x, std::span<const std::int32_t> columns, Rows out) override;
  void clustered_product(Rows x, Rows scores, int n_used, std::span<const std::int32_t> rows, const Linear& table,
                         Rows out) override;
  void write_rows(std::span<const float> values, Rows out) override;
  void mean_rows(Rows x, std::span<const RowRun> runs, Rows out) override;
  void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) override;
  void score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) override;
  void read_row(Rows logits, int row, std::span<float> out) override;
  void copy_block(KvPool& pool, std::int32_t from, std::int32_t to) override;

 private:
  friend struct TestAccess;
  void count(Op op) noexcept { launches_[static_cast<std::size_t>(op)].fetch_add(1, std::memory_order_relaxed); }
  // Measure the time of their scope; the second also counts the op.
  OpTimer timed(Op op) const noexcept;
  OpTimer run(Op op) noexcept;

  Activate activation(GatedActivation kind) const noexcept {
    switch (kind) {
      case GatedActivation::silu:
        return ops_.silu;
      case GatedActivation::gelu_tanh:
        return ops_.gelu_tanh;
      case GatedActivation::gelu_erf:
        return ops_.gated_gelu_erf;
    }
    return ops_.silu;
  }
  // The kernel for the mean number of rows per expert.
  static std::string_view kernel_name(const ExpertTerm& term, const ExpertRows& rows) noexcept;

  // Calls body(row) for each row. A wide row is a task; narrow rows share one.
  template <class Body>
  void for_rows(int n_rows, int width, const Body& body);
  // Calls body(row, first element, elements) for parts of rows.
  template <class Body>
  void for_pieces(int n_rows, int width, const Body& body);

  const CpuOps& ops_;
  GemmRegistry registry_;
  ThreadPool threads_;
  MemoryOptions memory_;  // of weights and KV
  Arena weights_;
  Arena workspace_;
  GemmRunner gemm_;
  Attention attention_;
  AttentionMass attention_mass_;
  Sampler sampler_;
  std::shared_ptr<std::byte> embed_scratch_;  // embed_row_bytes_ per thread
  std::size_t embed_row_bytes_ = 0;
  std::vector<std::shared_ptr<std::byte>> rows_;  // allocations of make_rows and make_expert_rows
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Op::count)> launches_{};
  OpTrace* trace_ = nullptr;
};

}  // namespace imp::cpu
