// Two loops over the pool: one prepares rows if a kernel needs it, one computes tasks of outputs.
#include "backend/cpu/gemm/gemm_runner.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/gemm/processor_tuning.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cpu {

namespace {

constexpr std::size_t kLine = 64;

std::size_t whole_lines(std::size_t n_bytes) {
  return round_up(n_bytes, kLine);
}

// A thread's scratch for a kernel of the plan and up to max_rows rows.
std::size_t scratch_needed(const Linear& weight, int max_rows) {
  std::size_t most = 0;
  for (const auto& [kernel, max_m] : weight.plan().kernels) {
    most = std::max(most, kernel->scratch_bytes(weight.problem(), std::min(max_m, max_rows)));
  }
  return whole_lines(most);
}

void add_bias(const float* bias, const GemmArgs& args) {
  for (int row = 0; row < args.m; ++row) {
    float* const to = args.out + row * args.out_stride;
    for (std::int64_t i = args.n_begin; i < args.n_end; ++i) to[i - args.n_begin] += bias[i];
  }
}

}  // namespace

GemmRunner::GemmRunner(const GemmRegistry& registry, ThreadPool& pool)
    : registry_(registry),
      pool_(pool),
      prefetching_rows_(prefetching_rows(registry.caps().processor)),
      arena_(std::size_t{2} << 20),
      launches_(registry.kernels().size()) {
  for (std::size_t format = 0; format < prepare_row_.size(); ++format) {
    prepare_row_[format] = preparer_for(static_cast<ActivationFormat>(format), registry.caps());
  }
  reserve_products(kMaxTerms);
}

void GemmRunner::reserve_products(std::size_t n_products) {
  products_.reserve(n_products);
  sizes_.reserve(n_products);
  // split_terms makes tasks of at least about half of a 32nd of a thread's share, but may cut one short at the end of a
  // product.
  tasks_.reserve(64 * static_cast<std::size_t>(pool_.n_threads()) + n_products);
}

GemmRunner::Scratch GemmRunner::scratch_for(const WorkspaceNeeds& needs) {
  Scratch needed;
  needed.gated = gated_floats(needs.max_rows);
  const auto prepared = [&](ActivationFormat format, std::ptrdiff_t row, std::int64_t n_rows) {
    std::size_t& bytes = needed.prepared[format];
    bytes = std::max(bytes, static_cast<std::size_t>(row * n_rows));
  };
  for (const Linear* weight : needs.weights) {
    needed.stride = std::max(needed.stride, scratch_needed(*weight, needs.max_rows));
    const ActivationFormat format = weight->plan().kernels.front().kernel->activations;
    prepared(format, prepared_bytes(format, weight->problem().k), needs.max_rows);
  }
  for (const Linear* weight : needs.expert_weights) {
    needed.stride = std::max(needed.stride, scratch_needed(*weight, needs.max_rows));
    const ActivationFormat format = weight->plan().kernels.front().kernel->activations;
    prepared(format, activation_bytes(format, weight->problem().k),
             std::int64_t{needs.max_rows} * needs.experts.n_used);
  }
  return needed;
}

void GemmRunner::reserve(const WorkspaceNeeds& needs) {
  const Scratch needed = scratch_for(needs);
  if (needed.stride > scratch_stride_) {
    scratch_ = arena_.allocate(needed.stride * static_cast<std::size_t>(pool_.n_threads()));
    scratch_stride_ = needed.stride;
  }
  if (needed.gated > gated_floats_) {
    gated_ = arena_.allocate(needed.gated * sizeof(float) * static_cast<std::size_t>(pool_.n_threads()));
    gated_floats_ = needed.gated;
  }
  for (std::size_t format = 0; format < prepared_.size(); ++format) {
    if (needed.prepared[format] <= prepared_bytes_[format]) continue;
    prepared_[format] = arena_.allocate(needed.prepared[format]);
    prepared_bytes_[format] = needed.prepared[format];
  }
  reserve_products(std::max(kMaxTerms, kMaxExpertTerms * static_cast<std::size_t>(needs.experts.n_experts)));
}

std::size_t GemmRunner::total_bytes(const Scratch& scratch) const {
  return std::accumulate(
      scratch.prepared.begin(), scratch.prepared.end(),
      (scratch.stride + scratch.gated * sizeof(float)) * static_cast<std::size_t>(pool_.n_threads()));
}

std::size_t GemmRunner::scratch_bytes(const WorkspaceNeeds& needs) const {
  return total_bytes(scratch_for(needs));
}

std::size_t GemmRunner::scratch_bytes() const noexcept {
  return total_bytes({prepared_bytes_, scratch_stride_, gated_floats_});
}

std::byte* GemmRunner::prepared_buffer(ActivationFormat format, std::ptrdiff_t n_bytes) const {
  IMP_CHECK(static_cast<std::size_t>(n_bytes) <= prepared_bytes_[format]);
  return prepared_[format].get();
}

GemmRunner::Prepared GemmRunner::prepare(Rows x, ActivationFormat format) {
  const PrepareRow prepare_row = prepare_row_[format];
  if (prepare_row == nullptr) {
    return {reinterpret_cast<const std::byte*>(x.data), x.stride * static_cast<std::ptrdiff_t>(sizeof(float))};
  }
  const std::ptrdiff_t stride = prepared_bytes(format, x.width);
  std::byte* const prepared = prepared_buffer(format, stride * x.n_rows);
  for_rows(x.n_rows, [&](int row) { prepare_row(x.data + row * x.stride, x.width, prepared + row * stride); });
  return {prepared, stride};
}

void GemmRunner::begin() noexcept {
  products_.clear();
  sizes_.clear();
}

GemmProduct GemmRunner::product_of(Rows x, const LinearTerm& term, Inputs& inputs) {
  const auto& weight = static_cast<const CpuLinear&>(*term.weight);
  const GemmKernel& kernel = weight.plan().kernel_for(x.n_rows);
  Prepared& input = inputs[kernel.activations];
  if (input.rows == nullptr) input = prepare(x, kernel.activations);
  const float* const bias = term.bias != nullptr ? term.bias->data() : nullptr;
  return {&weight, &kernel, bias, input.rows, input.stride, term.out};
}

void GemmRunner::count(const GemmKernel& kernel) noexcept {
  launches_[static_cast<std::size_t>(&kernel - registry_.kernels().data())].fetch_add(1, std::memory_order_relaxed);
}

void GemmRunner::add(const GemmProduct& product, std::int64_t panel_cost) {
  products_.push_back(product);
  sizes_.push_back({product.weight->problem().n, panel_cost});
  count(*product.kernel);
}

void GemmRunner::run_outputs(const GemmProduct& product, std::int64_t n_begin, std::int64_t n_end, float* out,
                             std::ptrdiff_t out_stride, int thread) const {
  const GemmProblem& problem = product.weight->problem();
  GemmArgs args;
  args.weight = product.weight->bytes();
  args.weight_type = problem.weight;
  args.activations = product.activations;
  args.activation_stride = product.activation_stride;
  args.out = out;
  args.out_stride = out_stride;
  args.m = product.out.n_rows;
  args.n = problem.n;
  args.k = problem.k;
  args.n_begin = n_begin;
  args.n_end = n_end;
  args.prefetching_rows = prefetching_rows_;
  args.scratch = scratch_.get() + static_cast<std::size_t>(thread) * scratch_stride_;
  product.kernel->run(args);
  if (product.bias != nullptr) add_bias(product.bias, args);
}

void GemmRunner::finish() {
  split_terms(sizes_, pool_.n_threads(), tasks_);
  pool_.run(static_cast<int>(tasks_.size()), [&](int i, int thread) {
    const GemmTask& task = tasks_[static_cast<std::size_t>(i)];
    const GemmProduct& product = products_[static_cast<std::size_t>(task.term)];
    run_outputs(product, task.n_begin, task.n_end, product.out.data + task.n_begin, product.out.stride, thread);
  });
}

void GemmRunner::run(Rows x, std::span<const LinearTerm> terms) {
  if (x.n_rows == 0 || terms.empty()) return;
  IMP_CHECK(terms.size() <= kMaxTerms);
  Inputs inputs;
  begin();
  for (const LinearTerm& term : terms) {
    const GemmProduct product = product_of(x, term, inputs);
    add(product, static_cast<std::int64_t>(product.weight->row_bytes()));
  }
  finish();
}

std::vector<std::uint64_t> GemmRunner::launches() const {
  std::vector<std::uint64_t> counts;
  for (const auto& count : launches_) counts.push_back(count.load(std::memory_order_relaxed));
  return counts;
}

}  // namespace imp::cpu
