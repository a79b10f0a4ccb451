// A GPU as a device: memory, stream and ops.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/attention/attention.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "backend/cuda/gemm/cublaslt/cublaslt.h"
#include "backend/cuda/gemm/gemm_runner.h"
#include "backend/cuda/inputs.h"
#include "backend/cuda/kv/cuda_kv_pool.h"
#include "backend/cuda/launch_counts.h"
#include "backend/cuda/padded_batch.h"
#include "backend/cuda/sampling/sampling.h"
#include "backend/cuda/step_graphs.h"
#include "backend/make_backend.h"
#include "backend/op_names.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace imp::cuda {

// Ops enqueue work on the stream and return. Errors are kept and thrown where results are read: by run_step(),
// sample(), finish_sample(), score(), read_row() and copy_block(), and where memory is made or reserved.
class CudaBackend final : public Backend {
 public:
  CudaBackend(const DeviceFacts& facts, const DeviceOptions& options);
  ~CudaBackend() override;

  const DeviceCaps& caps() const noexcept override { return registry_.caps(); }
  std::string device_name() const override;
  int n_threads() const noexcept override { return threads_.n_threads(); }
  const GemmRegistry& registry() const noexcept override { return registry_; }
  bool keeps_packed() const noexcept override { return false; }

  std::optional<std::uint64_t> own_memory_bytes() const override;
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

  std::span<const int> batches_to_prepare() const noexcept override;
  std::optional<StepGraphCounts> step_graphs() const noexcept override { return graphs_.counts(); }
  void run_step(const Batch& batch, KvPool& pool, StepBody& body) override;
  void embed(std::span<const std::int32_t> tokens, const Linear& table, float scale, Rows out) override;
  void rms_norm(Rows x, const Norm& norm, Rows out) override;
  void add_norm(Rows x, Rows y, const Norm& norm, Rows out) override;
  void linear(Rows x, std::span<const LinearTerm> terms) override;
  void gated_linear(Rows x, const GatedTerm& term, GatedActivation kind) override;
  void rope_angles(std::span<const std::int32_t> positions, const Rope& rope, Rows out) override;
  void rope(Rows x, int head_dim, const Norm& norm, const Rope& rope, Rows angles) override;
  void append_kv(KvPool& pool, int layer, std::span<const SequenceRows> sequences, Rows k, Rows v) override;
  void rope_append(KvPool& pool, int layer, std::span<const SequenceRows> sequences, int head_dim, const Rope& rope,
                   Rows angles, const RopeTerm& q, const RopeTerm& k, Rows v) override;
  void attend(const KvPool& pool, int layer, std::span<const SequenceRows> sequences, const AttentionParams& params,
              Rows q, Rows out) override;
  void gated_activation(GatedActivation kind, Rows gate, Rows up, Rows out) override;
  void route_experts(Rows scores, const ExpertRouting& routing, const ExpertRows& out) override;
  void expert_linear_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms) override;
  void expert_linear_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term) override;
  void mix_experts(Rows grouped, const ExpertRows& rows, Rows out) override;
  void add(Rows x, Rows y) override;
  void add_gated(Rows x, Rows y, Rows gates) override;
  void soft_cap(Rows x, float cap) override;
  void gather_rows(Rows x, std::span<const std::int32_t> rows, Rows out) override;
  void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) override;
  // Tracing waits for the device at every op anyway.
  bool runs_ahead() const noexcept override { return trace_ == nullptr; }
  bool begin_sample(Rows logits, std::span<const SampleRequest> requests) override;
  void finish_sample(std::span<const SampleRequest> requests, std::span<SampleResult> results) override;
  void score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) override;
  void read_row(Rows logits, int row, std::span<float> out) override;
  void copy_block(KvPool& pool, std::int32_t from, std::int32_t to) override;

 private:
  friend struct TestAccess;
  // Counts an op and, if ops are traced, times it until the device has finished it.
  class OpScope;
  OpScope run(Op op) noexcept;
  OpScope run(std::string_view kernel) noexcept;

  void drop_steps() noexcept;
  // Waits for the device and throws the errors since the last call.
  void finish();
  void throw_if_failed() const;  // does not wait
  DeviceError device_fault(const Status& status) const;

  DeviceFacts facts_;
  CublasLt cublaslt_;
  GemmRegistry registry_;
  LaunchCounts launches_;  // of ops, then of matrix kernels
  ThreadPool threads_;     // packs weights
  Stream stream_;
  DeviceArena weights_;
  DeviceArena workspace_;
  Inputs inputs_;
  GemmRunner gemm_;
  Attention attention_;
  Sampler sampler_;
  StepGraphs graphs_;
  PaddedBatch padded_;
  std::vector<std::shared_ptr<std::byte>> rows_;  // allocations of make_rows and make_expert_rows
  OpTrace* trace_ = nullptr;
};

}  // namespace imp::cuda
