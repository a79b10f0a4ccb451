// A backend that only samples and copies blocks and rows, which is all that the engine needs with a script model.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "native/script/script_model.h"

namespace imp::testing {

// The arguments of a call of the sampler.
struct RecordedDraw {
  SamplerParams params;  // without its lists
  std::vector<LogitBias> logit_bias;
  std::vector<std::int32_t> history;
  std::int32_t n_output = 0;
  std::uint32_t sequence = 0;
  std::uint32_t index = 0;
};

// Samples by steps 0 to 7 of the contract with simple code. It supports temperature, repetition, frequency and presence
// penalties, bias and masks; other options are errors. The ops of a transformer are errors.
class ScriptBackend final : public Backend {
 public:
  const DeviceCaps& caps() const noexcept override { return caps_; }
  std::string device_name() const override { return "script"; }
  int n_threads() const noexcept override { return 1; }
  const GemmRegistry& registry() const noexcept override { return registry_; }
  bool keeps_packed() const noexcept override { return false; }
  std::unique_ptr<Linear> load_linear(const WeightSource&, const GemmPlan&) override;
  std::vector<std::unique_ptr<Linear>> load_linears(std::span<const LinearRequest>, const BytesRead&) override;
  std::unique_ptr<Vector> load_vector(std::span<const float>) override;
  std::unique_ptr<KvPool> make_kv_pool(const KvGeometry& geometry) override;
  std::size_t kv_bytes(const KvGeometry&) const override { return 0; }
  Rows make_rows(int n_rows, int width) override;
  ExpertRows make_expert_rows(int, const ExpertRouting&) override;
  void reserve(const WorkspaceNeeds&) override;
  std::size_t scratch_bytes(const WorkspaceNeeds&) const override { return 0; }
  std::size_t scratch_bytes() const noexcept override { return 0; }
  std::vector<Launch> launches() const override { return {}; }
  void trace_ops(OpTrace*) noexcept override {}
  void run_step(const Batch& batch, KvPool& cache, StepBody& body) override { body.run(batch, cache); }
  void embed(std::span<const std::int32_t>, const Linear&, float, Rows) override;
  void rms_norm(Rows, const Norm&, Rows) override;
  void add_norm(Rows, Rows, const Norm&, Rows) override;
  void linear(Rows, std::span<const LinearTerm>) override;
  void gated_linear(Rows, const GatedTerm&, GatedActivation) override;
  void rope_angles(std::span<const std::int32_t>, const Rope&, Rows) override;
  void rope(Rows, int, const Norm&, const Rope&, Rows) override;
  void append_kv(KvPool&, int, std::span<const SequenceRows>, Rows, Rows) override;
  void attend(const KvPool&, int, std::span<const SequenceRows>, const AttentionParams&, Rows, Rows) override;
  void gated_activation(GatedActivation, Rows, Rows, Rows) override;
  void route_experts(Rows, const ExpertRouting&, const ExpertRows&) override;
  void expert_linear_in(Rows, const ExpertRows&, std::span<const ExpertTerm>) override;
  void expert_linear_out(Rows, const ExpertRows&, const ExpertTerm&) override;
  void mix_experts(Rows, const ExpertRows&, Rows) override;
  void add(Rows, Rows) override;
  void add_gated(Rows, Rows, Rows) override;
  void soft_cap(Rows, float) override;
  void gather_rows(Rows x, std::span<const std::int32_t> rows, Rows out) override;
  void sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) override;
  bool runs_ahead() const noexcept override { return ahead; }
  bool begin_sample(Rows logits, std::span<const SampleRequest> requests) override;
  void finish_sample(std::span<const SampleRequest> requests, std::span<SampleResult> results) override;
  void score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) override;
  void read_row(Rows logits, int row, std::span<float> out) override;
  void copy_block(KvPool& pool, std::int32_t from, std::int32_t to) override;
  SampleResult draw(std::span<const float> row, const SampleRequest& request);

  bool ahead = false;
  // The tokens that the last started sampling drew. Like a device, it has them before the host.
  std::vector<SampleResult> last_drawn;
  bool records = true;
  std::int64_t n_sample_calls = 0;
  std::vector<std::int64_t> failing_samples;  // the numbers of the sample calls that throw, from 0
  // A fault for tests to notice: a row of a guess is drawn from with the mask of the row before it.
  bool shifts_masks = false;
  std::vector<RecordedDraw> recorded;
  TokenPool* pool = nullptr;  // the last one created

 private:
  DeviceCaps caps_{.device = "script"};
  GemmRegistry registry_{{}, caps_};
  std::vector<double> adjusted_;
  std::deque<std::vector<float>> made_;
  std::deque<std::vector<SampleResult>> begun_;
};

}  // namespace imp::testing
