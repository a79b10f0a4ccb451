// Products in two loops over the pool: rows are prepared where a kernel wants it, then tasks of outputs are computed.
#include "backend/cpu/gemm/gemm_runner.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

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

// What a kernel of the plan needs of a thread for up to max_rows rows.
std::size_t scratch_needed(const Linear& weight, int max_rows) {
  std::size_t most = 0;
  for (const auto& [kernel, max_m] : weight.plan().kernels) {
    most = std::max(most, kernel->scratch_bytes(weight.problem(), std::min(max_m, max_rows)));
  }
  return whole_lines(most);
}

void add_bias(const Vector& bias, Rows out, const GemmTask& task) {
  for (int row = 0; row < out.n_rows; ++row) {
    float* const to = out.data + row * out.stride;
    for (std::int64_t i = task.n_begin; i < task.n_end; ++i) to[i] += bias.data()[i];
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
  reserve_products(kMaxTerms);
}

void GemmRunner::reserve_products(std::size_t n_products) {
  products_.reserve(n_products);
  sizes_.reserve(n_products);
  // split_terms makes tasks of about half of a 32nd of a thread's share at least, and may cut one short at the end of
  // each product.
  tasks_.reserve(64 * static_cast<std::size_t>(pool_.n_threads()) + n_products);
}

GemmRunner::Scratch GemmRunner::scratch_for(const GemmNeeds& needs) {
  Scratch needed;
  const auto prepared = [&](ActivationFormat format, std::ptrdiff_t row, std::int64_t n_rows) {
    std::size_t& bytes = needed.prepared[index(format)];
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

void GemmRunner::reserve(const GemmNeeds& needs) {
  const Scratch needed = scratch_for(needs);
  if (needed.stride > scratch_stride_) {
    scratch_ = arena_.allocate(needed.stride * static_cast<std::size_t>(pool_.n_threads()));
    scratch_stride_ = needed.stride;
  }
  for (std::size_t format = 0; format < kFormats; ++format) {
    if (needed.prepared[format] <= prepared_bytes_[format]) continue;
    prepared_[format] = arena_.allocate(needed.prepared[format]);
    prepared_bytes_[format] = needed.prepared[format];
  }
  reserve_products(std::max(kMaxTerms, kMaxExpertTerms * static_cast<std::size_t>(needs.experts.n_experts)));
}

std::size_t GemmRunner::total_bytes(const Scratch& scratch) const {
  return std::accumulate(scratch.prepared.begin(), scratch.prepared.end(),
                         scratch.stride * static_cast<std::size_t>(pool_.n_threads()));
}

std::size_t GemmRunner::scratch_bytes(const GemmNeeds& needs) const {
  return total_bytes(scratch_for(needs));
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

std::byte* GemmRunner::room_for(ActivationFormat format, std::ptrdiff_t n_bytes) const {
  IMP_CHECK(static_cast<std::size_t>(n_bytes) <= prepared_bytes_[index(format)]);
  return prepared_[index(format)].get();
}

GemmRunner::Prepared GemmRunner::prepare(Rows x, ActivationFormat format) {
  const PrepareRow prepare_row = prepare_row_[index(format)];
  if (prepare_row == nullptr) {
    return {reinterpret_cast<const std::byte*>(x.data), x.stride * static_cast<std::ptrdiff_t>(sizeof(float))};
  }
  const std::ptrdiff_t stride = prepared_bytes(format, x.width);
  std::byte* const prepared = room_for(format, stride * x.n_rows);
  for_rows(x.n_rows, [&](int row) { prepare_row(x.data + row * x.stride, x.width, prepared + row * stride); });
  return {prepared, stride};
}

void GemmRunner::begin() noexcept {
  products_.clear();
  sizes_.clear();
}

void GemmRunner::add(const GemmProduct& product, std::int64_t panel_cost) {
  products_.push_back(product);
  sizes_.push_back({product.weight->problem().n, panel_cost});
  launches_[static_cast<std::size_t>(product.kernel - registry_.kernels().data())].fetch_add(1,
                                                                                             std::memory_order_relaxed);
}

void GemmRunner::run_task(const GemmTask& task, int thread) const {
  const GemmProduct& product = products_[static_cast<std::size_t>(task.term)];
  const GemmProblem& problem = product.weight->problem();
  GemmArgs args;
  args.weight = product.weight->bytes();
  args.weight_type = problem.weight;
  args.activations = product.activations;
  args.activation_stride = product.activation_stride;
  args.out = product.out.data;
  args.out_stride = product.out.stride;
  args.m = product.out.n_rows;
  args.n = problem.n;
  args.k = problem.k;
  args.n_begin = task.n_begin;
  args.n_end = task.n_end;
  args.scratch = scratch_.get() + static_cast<std::size_t>(thread) * scratch_stride_;
  product.kernel->run(args);
  if (product.bias != nullptr) add_bias(*product.bias, product.out, task);
}

void GemmRunner::finish() {
  split_terms(sizes_, pool_.n_threads(), tasks_);
  pool_.run(static_cast<int>(tasks_.size()),
            [&](int task, int thread) { run_task(tasks_[static_cast<std::size_t>(task)], thread); });
}

void GemmRunner::run(Rows x, std::span<const LinearTerm> terms) {
  if (x.n_rows == 0 || terms.empty()) return;
  IMP_CHECK(terms.size() <= kMaxTerms);
  Inputs inputs;
  begin();
  for (const LinearTerm& term : terms) {
    const auto& weight = static_cast<const CpuLinear&>(*term.weight);
    const GemmKernel& kernel = weight.plan().kernel_for(x.n_rows);
    Prepared& input = inputs[index(kernel.activations)];
    if (input.rows == nullptr) input = prepare(x, kernel.activations);
    add({&weight, &kernel, term.bias, input.rows, input.stride, term.out},
        static_cast<std::int64_t>(weight.row_bytes()));
  }
  finish();
}

std::vector<std::uint64_t> GemmRunner::launches() const {
  std::vector<std::uint64_t> counts;
  for (const auto& count : launches_) counts.push_back(count.load(std::memory_order_relaxed));
  return counts;
}

}  // namespace imp::cpu
