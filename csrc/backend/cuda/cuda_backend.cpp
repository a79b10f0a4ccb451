// The CUDA backend's memory, counters and steps.
#include "backend/cuda/cuda_backend.h"

#include <algorithm>

#include "backend/cuda/gemm/kernel_list.h"
#include "backend/cuda/gemm/load_linears.h"
#include "backend/cuda/kv/cuda_kv_pool.h"
#include "backend/cuda/op_scope.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

// Steps of a few batch sizes are replayed. Each size of one model has one graph.
constexpr std::size_t kMaxGraphs = 32;

class CudaVector final : public Vector {
 public:
  CudaVector(std::shared_ptr<std::byte> memory, int size) : memory_(std::move(memory)), size_(size) {}
  const float* data() const noexcept override { return reinterpret_cast<const float*>(memory_.get()); }
  int size() const noexcept override { return size_; }

 private:
  std::shared_ptr<std::byte> memory_;
  int size_;
};

DeviceCaps with_library(DeviceCaps caps, KernelLibrary& cublaslt) {
  caps.cublaslt = &cublaslt;
  return caps;
}

// A small part of a device's memory, so that the unused end of a chunk does not matter.
std::size_t chunk_bytes(const DeviceFacts& facts) {
  return std::clamp(facts.total_bytes / 128, std::size_t{1} << 20, DeviceArena::kChunkBytes);
}

// None of the ops that a backend may lack has a kernel for GPUs.
void refuse_missing_ops(const WorkspaceNeeds& needs) {
  if (needs.ops.empty()) return;
  const std::string_view name = kOpNames[static_cast<std::size_t>(needs.ops.front())];
  throw FieldInvalid("device", "cuda lacks the op " + std::string(name) + ", which the model needs; cpu has it");
}

// Blocks of the smallest size that a batch may name. Sequences may share blocks, so the cache's size is no limit.
std::int64_t most_blocks(const WorkspaceNeeds& needs) {
  constexpr int kMinBlockTokens = 16;
  return std::int64_t{needs.max_sequences} * (needs.max_context / kMinBlockTokens + 1);
}

}  // namespace

CudaBackend::CudaBackend(const DeviceFacts& facts, const DeviceOptions& options)
    : facts_(facts),
      cublaslt_(options.cublaslt),
      registry_(kernel_list(), with_library(facts.caps, cublaslt_), options.tuning),
      launches_(kOpNames.size() + registry_.kernels().size()),
      threads_({.n_threads = options.n_threads, .cpus = options.cpus}),
      weights_(chunk_bytes(facts)),
      workspace_(chunk_bytes(facts)),
      inputs_(stream_),
      gemm_(registry_, stream_, launches_, kOpNames.size()),
      attention_(stream_, registry_.caps()),
      sampler_(stream_),
      graphs_(stream_, launches_, kMaxGraphs) {
  stream_.cublaslt = &cublaslt_;
  stream_.n_processors = facts.caps.n_processors;
  const Status status = make_stream(stream_);
  if (!status.is_ok()) {
    throw DeviceError(Reason::DEVICE_MISSING, std::string("device cuda: ") + facts.name + ": " + status.name);
  }
}

CudaBackend::~CudaBackend() {
  synchronize(stream_);
  free_stream(stream_);
}

std::string CudaBackend::device_name() const {
  return facts_.name;
}

std::optional<std::uint64_t> CudaBackend::own_memory_bytes() const {
  // A part of the free memory stays free: no plan counts what the driver, graphs and padding take.
  constexpr std::size_t kLeftOver = std::size_t{512} << 20;
  std::size_t free = 0;
  if (const Status status = free_bytes(free); !status.is_ok()) throw device_fault(status);
  return free - std::max(std::min(kLeftOver, free / 8), free / 64);
}

std::unique_ptr<Linear> CudaBackend::load_linear(const WeightSource& source, const GemmPlan& plan) {
  const LinearRequest request{source, plan};
  return std::move(load_linears({&request, 1}, {}).front());
}

std::vector<std::unique_ptr<Linear>> CudaBackend::load_linears(std::span<const LinearRequest> requests,
                                                               const BytesRead& progress) {
  std::vector<std::unique_ptr<Linear>> loaded = load_cuda_linears(requests, weights_, threads_, stream_, progress);
  finish();
  return loaded;
}

std::unique_ptr<Vector> CudaBackend::load_vector(std::span<const float> values) {
  std::shared_ptr<std::byte> memory = weights_.allocate(values.size_bytes());
  copy_to_device(stream_, memory.get(), values.data(), values.size_bytes());
  finish();
  return std::make_unique<CudaVector>(std::move(memory), static_cast<int>(values.size()));
}

std::size_t CudaBackend::kv_bytes(const KvGeometry& geometry) const {
  const std::size_t n = CudaKvPool::n_bytes(geometry);
  attention_.require_supported(geometry);
  return n;
}

std::unique_ptr<KvPool> CudaBackend::make_kv_pool(const KvGeometry& geometry) {
  kv_bytes(geometry);  // throws for an impossible geometry
  drop_steps();
  auto pool = std::make_unique<CudaKvPool>(geometry, stream_);
  finish();
  return pool;
}

Rows CudaBackend::make_rows(int n_rows, int width) {
  constexpr int kLineFloats = 16;
  const std::ptrdiff_t stride = round_up(width, kLineFloats);
  rows_.push_back(
      workspace_.allocate(static_cast<std::size_t>(n_rows) * static_cast<std::size_t>(stride) * sizeof(float)));
  return {.data = reinterpret_cast<float*>(rows_.back().get()), .n_rows = n_rows, .width = width, .stride = stride};
}

ExpertRows CudaBackend::make_expert_rows(int n_rows, const ExpertRouting& routing) {
  const std::ptrdiff_t n_grouped = std::ptrdiff_t{n_rows} * routing.n_used;
  rows_.push_back(workspace_.allocate(expert_rows_bytes(n_rows, routing) +
                                      static_cast<std::size_t>(n_grouped) * sizeof(std::int32_t)));
  auto* const experts = reinterpret_cast<std::int32_t*>(rows_.back().get());
  return {.n_rows = n_rows,
          .n_experts = routing.n_experts,
          .n_used = routing.n_used,
          .experts = experts,
          .weights = reinterpret_cast<float*>(experts + n_grouped),
          .grouped_rows = experts + 2 * n_grouped,
          .begins = experts + 4 * n_grouped,
          .sources = experts + 3 * n_grouped};
}

void CudaBackend::drop_steps() noexcept {
  synchronize(stream_);
  graphs_.clear();
  sampler_.forget();
}

void CudaBackend::reserve(const WorkspaceNeeds& needs) {
  refuse_missing_ops(needs);
  drop_steps();  // growing scratch moves
  inputs_.reserve(needs.max_rows, most_blocks(needs));
  gemm_.reserve(needs);
  attention_.reserve(needs.max_sequences, needs.max_context, needs.attention);
  sampler_.reserve(needs.max_logits_rows, needs.vocab_size, needs.max_context);
  padded_.reserve(needs.max_rows);
  finish();
}

std::size_t CudaBackend::scratch_bytes(const WorkspaceNeeds& needs) const {
  refuse_missing_ops(needs);
  return Inputs::n_bytes(needs.max_rows, most_blocks(needs)) + gemm_.scratch_bytes(needs) +
         attention_.scratch_bytes(needs.max_sequences, needs.max_context, needs.attention) +
         sampler_.scratch_bytes(needs.max_logits_rows, needs.vocab_size, needs.max_context);
}

std::size_t CudaBackend::scratch_bytes() const noexcept {
  return inputs_.n_bytes() + gemm_.scratch_bytes() + attention_.scratch_bytes() + sampler_.scratch_bytes();
}

CudaBackend::OpScope CudaBackend::run(Op op) noexcept {
  gemm_.forget();  // prepared input of one op serves only the next op
  const auto index = static_cast<std::size_t>(op);
  launches_.add(index);
  return {stream_, trace_, kOpNames[index]};
}

CudaBackend::OpScope CudaBackend::run(std::string_view kernel) noexcept {
  return {stream_, trace_, kernel};
}

void CudaBackend::finish() {
  synchronize(stream_);
  throw_if_failed();
}

void CudaBackend::throw_if_failed() const {
  if (!stream_.is_ok()) throw device_fault(stream_.first_failure());
}

DeviceError CudaBackend::device_fault(const Status& status) const {
  return {Reason::DEVICE_FAULT, "device cuda: " + facts_.name + ": " + status.name + " (" +
                                    std::to_string(status.code) + "); the GPU can no longer be used"};
}

std::span<const int> CudaBackend::batches_to_prepare() const noexcept {
  static constexpr int kSizes[] = {1, 2, 4, 8};
  return kSizes;
}

void CudaBackend::run_step(const Batch& batch, KvPool& pool, StepBody& body) {
  throw_if_failed();
  const auto is_decode = [](const SequenceRows& one) { return one.n_rows == 1 && one.ends.empty(); };
  const bool is_plain = batch.placed.empty() && std::ranges::all_of(batch.sequences, is_decode);
  const bool has_logits = batch.logits_rows.size() == batch.tokens.size();
  const bool repeats = is_plain && (has_logits || batch.logits_rows.empty()) && trace_ == nullptr;
  if (!repeats) {
    inputs_.upload(batch);
    graphs_.count_eager();
    body.run(batch, pool);
  } else {
    const Batch padded = padded_.pad(batch, body.max_rows(), static_cast<const CudaKvPool&>(pool).spare_block());
    inputs_.upload(padded);
    const StepKey key = {&body, &pool, static_cast<int>(padded.tokens.size()), has_logits};
    graphs_.run(key, [&] { body.run(padded, pool); });
  }
  inputs_.forget();
  throw_if_failed();
}

std::vector<Launch> CudaBackend::launches() const {
  std::vector<Launch> result;
  for (std::size_t op = 0; op < kOpNames.size(); ++op) {
    if (!is_optional(static_cast<Op>(op))) result.push_back({kOpNames[op], launches_[op]});
  }
  const std::span<const GemmKernel> kernels = registry_.kernels();
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    result.push_back({kernels[i].name, launches_[kOpNames.size() + i]});
  }
  return result;
}

}  // namespace imp::cuda
