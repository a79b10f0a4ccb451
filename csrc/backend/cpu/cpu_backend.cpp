// The CPU backend's memory: allocations, scratch, counters.
#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <iterator>

#include "backend/cpu/gemm/cpu_linear.h"
#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/gemm/load_linears.h"
#include "backend/cpu/gemm/processor_tuning.h"
#include "backend/cpu/kv/cpu_kv_pool.h"
#include "backend/cpu/make_cpu_backend.h"
#include "backend/cpu/ops/ops_tables.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

class CpuVector final : public Vector {
 public:
  CpuVector(std::span<const float> values, Arena& arena)
      : memory_(arena.allocate(values.size_bytes())), size_(static_cast<int>(values.size())) {
    std::ranges::copy(values, reinterpret_cast<float*>(memory_.get()));
  }
  const float* data() const noexcept override { return reinterpret_cast<const float*>(memory_.get()); }
  int size() const noexcept override { return size_; }

 private:
  std::shared_ptr<std::byte> memory_;
  int size_;
};

std::size_t longest_row_bytes(std::span<const Linear* const> weights) {
  std::size_t longest = 0;
  for (const Linear* weight : weights) {
    const GemmProblem& problem = weight->problem();
    longest = std::max(longest, static_cast<std::size_t>(*row_bytes(problem.weight, problem.k)));
  }
  return longest;
}

bool scores_prompts(const WorkspaceNeeds& needs) {
  return std::ranges::find(needs.ops, Op::attention_mass) != needs.ops.end();
}

// An instruction set that the options name has its own loops, so that they can be tested and measured everywhere.
const CpuOps& loops_of(const DeviceCaps& caps, const DeviceOptions& options) {
  return *ops_for(options.isa == "auto" ? fastest_features(caps) : caps.cpu).ops;
}

}  // namespace

CpuBackend::CpuBackend(const DeviceCaps& caps, const DeviceOptions& options)
    : ops_(loops_of(caps, options)),
      registry_(kernel_list(), caps, with_processor_tuning(options.tuning, caps)),
      threads_({.n_threads = options.n_threads, .cpus = options.cpus}),
      memory_(options.memory),
      weights_(Arena::kChunkBytes, options.memory),
      gemm_(registry_, threads_),
      attention_(ops_, threads_),
      attention_mass_(ops_, threads_),
      sampler_(ops_, threads_) {}

std::string CpuBackend::device_name() const {
  return processor_name() + " (" + isa_name(caps().cpu) + ")";
}

std::unique_ptr<Linear> CpuBackend::load_linear(const WeightSource& source, const GemmPlan& plan) {
  return load_cpu_linear(source, plan, weights_, threads_);
}

std::vector<std::unique_ptr<Linear>> CpuBackend::load_linears(std::span<const LinearRequest> requests,
                                                              const BytesRead& progress) {
  std::vector<std::unique_ptr<CpuLinear>> loaded = load_cpu_linears(requests, weights_, threads_, progress);
  return {std::make_move_iterator(loaded.begin()), std::make_move_iterator(loaded.end())};
}

std::unique_ptr<Vector> CpuBackend::load_vector(std::span<const float> values) {
  return std::make_unique<CpuVector>(values, weights_);
}

std::unique_ptr<KvPool> CpuBackend::make_kv_pool(const KvGeometry& geometry) {
  return std::make_unique<CpuKvPool>(geometry, memory_);
}

std::size_t CpuBackend::kv_bytes(const KvGeometry& geometry) const {
  return CpuKvPool::n_bytes(geometry);
}

Rows CpuBackend::make_rows(int n_rows, int width) {
  const std::ptrdiff_t stride = padded_to_lanes(width);
  rows_.push_back(
      workspace_.allocate(static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(stride) * sizeof(float)));
  return {.data = reinterpret_cast<float*>(rows_.back().get()), .n_rows = n_rows, .width = width, .stride = stride};
}

ExpertRows CpuBackend::make_expert_rows(int n_rows, const ExpertRouting& routing) {
  rows_.push_back(workspace_.allocate(expert_rows_bytes(n_rows, routing)));
  const std::ptrdiff_t n_grouped = std::ptrdiff_t{n_rows} * routing.n_used;
  auto* const experts = reinterpret_cast<std::int32_t*>(rows_.back().get());
  return {.n_rows = n_rows,
          .n_experts = routing.n_experts,
          .n_used = routing.n_used,
          .experts = experts,
          .weights = reinterpret_cast<float*>(experts + n_grouped),
          .grouped_rows = experts + 2 * n_grouped,
          .begins = experts + 3 * n_grouped};
}

void CpuBackend::reserve(const WorkspaceNeeds& needs) {
  gemm_.reserve(needs);
  attention_.reserve(needs.max_rows, needs.max_context, needs.attention);
  if (scores_prompts(needs)) attention_mass_.reserve(needs.max_context, needs.attention);
  sampler_.reserve(needs.vocab_size, needs.max_context);
  embed_row_bytes_ = std::max(embed_row_bytes_, longest_row_bytes(needs.weights));
  embed_scratch_ = workspace_.allocate(embed_row_bytes_ * static_cast<std::size_t>(n_threads()));
}

std::size_t CpuBackend::scratch_bytes(const WorkspaceNeeds& needs) const {
  const std::size_t mass_bytes =
      scores_prompts(needs) ? attention_mass_.scratch_bytes(needs.max_context, needs.attention) : 0;
  return gemm_.scratch_bytes(needs) + attention_.scratch_bytes(needs.max_context, needs.attention) + mass_bytes +
         sampler_.scratch_bytes(needs.vocab_size, needs.max_context) +
         longest_row_bytes(needs.weights) * static_cast<std::size_t>(n_threads());
}

std::size_t CpuBackend::scratch_bytes() const noexcept {
  return gemm_.scratch_bytes() + attention_.scratch_bytes() + attention_mass_.scratch_bytes() +
         sampler_.scratch_bytes() + embed_row_bytes_ * static_cast<std::size_t>(n_threads());
}

OpTimer CpuBackend::timed(Op op) const noexcept {
  return {trace_, kOpNames[static_cast<std::size_t>(op)]};
}

OpTimer CpuBackend::run(Op op) noexcept {
  count(op);
  return timed(op);
}

std::vector<Launch> CpuBackend::launches() const {
  std::vector<Launch> result;
  for (std::size_t op = 0; op < kOpNames.size(); ++op) {
    result.push_back({kOpNames[op], launches_[op].load(std::memory_order_relaxed)});
  }
  const std::vector<std::uint64_t> products = gemm_.launches();
  for (std::size_t i = 0; i < products.size(); ++i) result.push_back({registry_.kernels()[i].name, products[i]});
  return result;
}

std::unique_ptr<Backend> make_cpu_backend(const DeviceCaps& caps, const DeviceOptions& options) {
  return std::make_unique<CpuBackend>(caps, options);
}

}  // namespace imp::cpu
