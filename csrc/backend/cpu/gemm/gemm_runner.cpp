// Products in two loops over the pool: rows are prepared where a kernel wants it, then tasks of outputs are computed.
#include "backend/cpu/gemm/gemm_runner.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/float_mode.h"

namespace imp::cpu {

namespace {

constexpr std::size_t kLine = 64;

std::size_t whole_lines(std::size_t n_bytes) {
  return (n_bytes + kLine - 1) / kLine * kLine;
}

// Its place in tables of formats.
std::size_t index(ActivationFormat format) {
  return static_cast<std::size_t>(format);
}

std::size_t scratch_needed(const Linear& weight, int max_rows) {
  std::size_t most = 0;
  for (const auto& [kernel, max_m] : weight.plan().kernels) {
    most = std::max(most, kernel->scratch_bytes(weight.problem(), std::min(max_m, max_rows)));
  }
  return whole_lines(most);
}

void add_bias(const LinearTerm& term, const GemmTask& task) {
  for (int row = 0; row < term.out.n_rows; ++row) {
    float* const out = term.out.data + row * term.out.stride;
    const float* const bias = term.bias->data();
    for (std::int64_t i = task.n_begin; i < task.n_end; ++i) out[i] += bias[i];
  }
}

}  // namespace

GemmRunner::GemmRunner(const GemmRegistry& registry, ThreadPool& pool)
    : registry_(registry),
      pool_(pool),
      prepare_row_{preparer_for(ActivationFormat::f32, registry.caps()),
                   preparer_for(ActivationFormat::bf16, registry.caps()),
                   preparer_for(ActivationFormat::q8_block32, registry.caps())},
      arena_(std::size_t{2} << 20),
      launches_(registry.kernels().size()) {
  sizes_.reserve(kMaxTerms);
  // split_terms makes tasks of at least a 32nd of a thread's share, and may cut one short at the end of each term.
  tasks_.reserve(32 * static_cast<std::size_t>(pool.n_threads()) + 2 * kMaxTerms);
}

GemmRunner::Scratch GemmRunner::scratch_for(int max_rows, std::span<const Linear* const> weights) {
  Scratch needed;
  for (const Linear* weight : weights) {
    needed.stride = std::max(needed.stride, scratch_needed(*weight, max_rows));
    const ActivationFormat format = weight->plan().kernels.front().kernel->activations;
    const auto row = static_cast<std::size_t>(prepared_bytes(format, weight->problem().k));
    std::size_t& prepared = needed.prepared[index(format)];
    prepared = std::max(prepared, row * static_cast<std::size_t>(max_rows));
  }
  return needed;
}

void GemmRunner::reserve(int max_rows, std::span<const Linear* const> weights) {
  const Scratch needed = scratch_for(max_rows, weights);
  if (needed.stride > scratch_stride_) {
    scratch_ = arena_.allocate(needed.stride * static_cast<std::size_t>(pool_.n_threads()));
    scratch_stride_ = needed.stride;
  }
  for (std::size_t format = 0; format < kFormats; ++format) {
    if (needed.prepared[format] <= prepared_bytes_[format]) continue;
    prepared_[format] = arena_.allocate(needed.prepared[format]);
    prepared_bytes_[format] = needed.prepared[format];
  }
}

std::size_t GemmRunner::total_bytes(const Scratch& scratch) const {
  return std::accumulate(scratch.prepared.begin(), scratch.prepared.end(),
                         scratch.stride * static_cast<std::size_t>(pool_.n_threads()));
}

std::size_t GemmRunner::scratch_bytes(int max_rows, std::span<const Linear* const> weights) const {
  return total_bytes(scratch_for(max_rows, weights));
}

std::size_t GemmRunner::scratch_bytes() const noexcept {
  return total_bytes({prepared_bytes_, scratch_stride_});
}

#if IMP_TESTING
void GemmRunner::fill_scratch(std::uint8_t value) {
  for (std::size_t format = 0; format < kFormats; ++format) {
    std::fill_n(prepared_[format].get(), prepared_bytes_[format], std::byte{value});
  }
  std::fill_n(scratch_.get(), scratch_stride_ * static_cast<std::size_t>(pool_.n_threads()), std::byte{value});
}
#endif

void GemmRunner::prepare(Rows x, ActivationFormat format) {
  const PrepareRow prepare_row = prepare_row_[index(format)];
  if (prepare_row == nullptr) return;
  const std::ptrdiff_t stride = prepared_bytes(format, x.width);
  IMP_CHECK(static_cast<std::size_t>(stride) * static_cast<std::size_t>(x.n_rows) <= prepared_bytes_[index(format)]);
  std::byte* const prepared = prepared_[index(format)].get();
  const auto prepare_one = [&](int row, int) {
    prepare_row(x.data + row * x.stride, x.width, prepared + row * stride);
  };
  // Below this a loop on the pool costs more than it saves.
  constexpr int kAlone = 4;
  if (x.n_rows > kAlone) return pool_.run(x.n_rows, prepare_one);
  const ComputeFloatMode mode;
  for (int row = 0; row < x.n_rows; ++row) prepare_one(row, 0);
}

void GemmRunner::run_task(const GemmTask& task, Rows x, std::span<const LinearTerm> terms, int thread) const {
  const LinearTerm& term = terms[static_cast<std::size_t>(task.term)];
  const auto& weight = static_cast<const CpuLinear&>(*term.weight);
  const GemmKernel& kernel = weight.plan().kernel_for(x.n_rows);
  GemmArgs args;
  args.weight = weight.bytes();
  args.weight_type = weight.problem().weight;
  if (kernel.activations == ActivationFormat::f32) {
    args.activations = reinterpret_cast<const std::byte*>(x.data);
    args.activation_stride = x.stride * static_cast<std::ptrdiff_t>(sizeof(float));
  } else {
    args.activations = prepared_[index(kernel.activations)].get();
    args.activation_stride = prepared_bytes(kernel.activations, x.width);
  }
  args.out = term.out.data;
  args.out_stride = term.out.stride;
  args.m = x.n_rows;
  args.n = weight.problem().n;
  args.k = weight.problem().k;
  args.n_begin = task.n_begin;
  args.n_end = task.n_end;
  args.scratch = scratch_.get() + static_cast<std::size_t>(thread) * scratch_stride_;
  kernel.run(args);
  if (term.bias != nullptr) add_bias(term, task);
}

void GemmRunner::run(Rows x, std::span<const LinearTerm> terms) {
  if (x.n_rows == 0 || terms.empty()) return;
  IMP_CHECK(terms.size() <= kMaxTerms);
  std::array<bool, kFormats> wanted{};
  sizes_.clear();
  for (const LinearTerm& term : terms) {
    const auto& weight = static_cast<const CpuLinear&>(*term.weight);
    const GemmKernel& kernel = weight.plan().kernel_for(x.n_rows);
    wanted[index(kernel.activations)] = true;
    sizes_.push_back({weight.problem().n, static_cast<std::int64_t>(weight.row_bytes())});
    launches_[static_cast<std::size_t>(&kernel - registry_.kernels().data())].fetch_add(1, std::memory_order_relaxed);
  }
  for (const ActivationFormat format : {ActivationFormat::bf16, ActivationFormat::q8_block32}) {
    if (wanted[index(format)]) prepare(x, format);
  }
  split_terms(sizes_, pool_.n_threads(), tasks_);
  pool_.run(static_cast<int>(tasks_.size()),
            [&](int task, int thread) { run_task(tasks_[static_cast<std::size_t>(task)], x, terms, thread); });
}

std::vector<std::uint64_t> GemmRunner::launches() const {
  std::vector<std::uint64_t> counts;
  for (const auto& count : launches_) counts.push_back(count.load(std::memory_order_relaxed));
  return counts;
}

}  // namespace imp::cpu
