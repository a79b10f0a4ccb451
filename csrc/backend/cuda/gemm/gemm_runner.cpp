// Combines products into launches.
#include "backend/cuda/gemm/gemm_runner.h"

#include <algorithm>
#include <numeric>

#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/runtime.h"
#include "backend/cuda/gemm/activation_rows.h"
#include "backend/cuda/gemm/cuda_linear.h"
#include "backend/cuda/ops/cuda_ops.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

// Upper bound of the gates' scratch: more rows run in parts.
constexpr std::int64_t kGateBytes = std::int64_t{32} << 20;
// Alignment of the scratch of each term of a launch.
constexpr std::size_t kScratchStep = 256;

std::size_t scratch_of(const GemmKernel& kernel, const GemmProblem& problem, int m) {
  return round_up(kernel.scratch_bytes(problem, m), kScratchStep);
}

// Rows of gates that fit the scratch.
std::int64_t gate_rows(std::int64_t n, int n_rows) {
  return std::clamp(kGateBytes / (n * static_cast<std::int64_t>(sizeof(float))), std::int64_t{1}, std::int64_t{n_rows});
}

Rows part_of(Rows rows, std::int64_t first, std::int64_t n_rows) {
  rows.data += first * rows.stride;
  rows.n_rows = static_cast<int>(n_rows);
  return rows;
}

// The kernels that run for up to max_rows rows of one matrix, each with the most rows it gets.
template <class Visit>
void for_each_reached(const GemmPlan& plan, int max_rows, const Visit& visit) {
  int from = 1;
  for (const auto& [kernel, max_m] : plan.kernels) {
    if (from > max_rows) break;
    const int rows = std::min(max_m, max_rows);
    visit(*kernel, rows);
    from = rows + 1;
  }
}

GemmFusion fusion_of(GatedActivation kind) {
  IMP_CHECK(kind != GatedActivation::gelu_erf);
  return kind == GatedActivation::silu ? GemmFusion::silu : GemmFusion::gelu_tanh;
}

}  // namespace

GemmRunner::GemmRunner(const GemmRegistry& registry, Stream& stream, LaunchCounts& launches, std::size_t first_count)
    : registry_(registry), stream_(stream), launches_(launches), first_count_(first_count) {
  products_.reserve(kMaxTerms);
}

// ---- scratch

std::size_t GemmRunner::Scratch::total() const noexcept {
  return std::accumulate(prepared.begin(), prepared.end(), gate + kernels);
}

void GemmRunner::ScratchBuffer::grow(std::size_t needed) {
  if (needed <= n_bytes) return;
  memory.reset();  // free the old one first, so that both need not fit
  n_bytes = 0;
  memory = allocate_on_device(needed);
  n_bytes = needed;
}

GemmRunner::Scratch GemmRunner::scratch_for(const WorkspaceNeeds& needs) {
  Scratch needed;
  const auto add = [&](const Linear& weight, int n_used) {
    const GemmProblem& problem = weight.problem();
    for_each_reached(weight.plan(), needs.max_rows, [&](const GemmKernel& kernel, int rows) {
      needed.kernels = std::max(needed.kernels, scratch_of(kernel, problem, rows * n_used));
      std::size_t& prepared = needed.prepared[kernel.activations];
      prepared = std::max(
          prepared, static_cast<std::size_t>(activation_row_bytes(kernel.activations, problem.k) * rows * n_used));
    });
  };
  for (const Linear* weight : needs.weights) {
    add(*weight, 1);
    const std::int64_t n = weight->problem().n;
    needed.gate =
        std::max(needed.gate, static_cast<std::size_t>(gate_rows(n, std::max(needs.max_rows, 1)) * n) * sizeof(float));
  }
  for (const Linear* weight : needs.expert_weights) add(*weight, needs.experts.n_used);
  return needed;
}

void GemmRunner::reserve(const WorkspaceNeeds& needs) {
  const Scratch needed = scratch_for(needs);
  for (std::size_t format = 0; format < prepared_.size(); ++format) prepared_[format].grow(needed.prepared[format]);
  gate_.grow(needed.gate);
  kernel_scratch_.grow(needed.kernels);
  for (const Linear* weight : needs.weights) {
    for_each_reached(weight->plan(), needs.max_rows, [&](const GemmKernel& kernel, int) {
      if (kernel.prepare != nullptr) kernel.prepare(weight->problem(), &stream_);
    });
  }
  tables_.add(needs.expert_weights, needs.experts.n_experts, stream_);
}

std::size_t GemmRunner::scratch_bytes(const WorkspaceNeeds& needs) const {
  return scratch_for(needs).total() + ExpertTables::n_bytes(needs.expert_weights, needs.experts.n_experts);
}

std::size_t GemmRunner::scratch_bytes() const noexcept {
  Scratch held = {.gate = gate_.n_bytes, .kernels = kernel_scratch_.n_bytes};
  for (std::size_t format = 0; format < prepared_.size(); ++format) held.prepared[format] = prepared_[format].n_bytes;
  return held.total() + tables_.n_bytes();
}

// ---- inputs

PreparedRows GemmRunner::reserve_prepared(Rows x, const Linear* reader) {
  forget();
  if (reader == nullptr || x.n_rows == 0) return {};
  const ActivationFormat format = reader->plan().kernel_for(x.n_rows).activations;
  if (!can_be_fused(format)) return {};
  const ScratchBuffer& buffer = prepared_[format];
  IMP_CHECK(static_cast<std::size_t>(activation_row_bytes(format, x.width) * x.n_rows) <= buffer.n_bytes);
  ready_ = {x.data, x.n_rows, format};
  return {format, buffer.memory.get()};
}

GemmRunner::Inputs GemmRunner::inputs_of(Rows x) noexcept {
  Inputs inputs;
  if (ready_.x == x.data && ready_.n_rows == x.n_rows && x.data != nullptr) {
    inputs[ready_.format] = {prepared_[ready_.format].memory.get(), activation_row_bytes(ready_.format, x.width)};
  }
  forget();
  return inputs;
}

const GemmRunner::Prepared& GemmRunner::prepare(Rows x, ActivationFormat format, Inputs& inputs) {
  Prepared& input = inputs[format];
  if (input.rows != nullptr) return input;
  if (format == ActivationFormat::f32) {
    return input = {reinterpret_cast<const std::byte*>(x.data), x.stride * static_cast<std::ptrdiff_t>(sizeof(float))};
  }
  const ScratchBuffer& buffer = prepared_[format];
  const std::ptrdiff_t stride = activation_row_bytes(format, x.width);
  IMP_CHECK(static_cast<std::size_t>(stride * x.n_rows) <= buffer.n_bytes);
  prepare_rows(stream_, x, format, buffer.memory.get());
  return input = {buffer.memory.get(), stride};
}

// ---- launches

GemmRunner::Product GemmRunner::product_of(const Linear& weight, const Vector* bias, Rows out, int m) {
  return {.kernel = &weight.plan().kernel_for(m),
          .problem = weight.problem(),
          .term = {.weight = static_cast<const CudaLinear&>(weight).bytes(),
                   .bias = bias != nullptr ? bias->data() : nullptr,
                   .out = out.data,
                   .out_stride = out.stride,
                   .n = weight.problem().n}};
}

bool GemmRunner::is_alike(const Product& a, const Product& b) noexcept {
  return a.kernel == b.kernel && a.problem.weight == b.problem.weight;
}

void GemmRunner::launch_one(const Batch& batch, std::span<const Product* const> products, GemmFusion fusion,
                            Inputs& inputs) {
  const Product& first = *products.front();
  const Prepared& x = prepare(batch.x, first.kernel->activations, inputs);
  std::array<GemmLaunchTerm, GemmLaunch::kMaxTerms> terms;
  std::ranges::transform(products, terms.begin(), [](const Product* product) { return product->term; });
  GemmLaunch launch = {.stream = &stream_,
                       .terms = std::span(terms).first(products.size()),
                       .weight_type = first.problem.weight,
                       .fusion = fusion,
                       .x = x.rows,
                       .x_stride = x.stride,
                       .m = batch.m,
                       .k = first.problem.k,
                       .sources = batch.sources,
                       .scratch = kernel_scratch_.memory.get()};
  if (batch.experts != nullptr) {
    launch.n_experts = batch.experts->n_experts;
    launch.begins = batch.experts->begins;
  }
  first.kernel->launch(launch);
  launches_.add(first_count_ + static_cast<std::size_t>(first.kernel - registry_.kernels().data()));
}

// As few launches as kernels, weight types and scratch allow.
void GemmRunner::launch(const Batch& batch, std::span<const Product> products, Inputs& inputs) {
  static_assert(kMaxTerms <= 64);
  IMP_CHECK(products.size() <= kMaxTerms);
  std::uint64_t launched = 0;  // a bit per product
  for (std::size_t first = 0; first < products.size(); ++first) {
    std::array<const Product*, GemmLaunch::kMaxTerms> together;
    std::size_t n = 0, scratch = 0;
    for (std::size_t i = first; i < products.size() && n < together.size(); ++i) {
      const Product& product = products[i];
      if ((launched >> i & 1) != 0 || !is_alike(product, products[first])) continue;
      const std::size_t its_scratch = scratch_of(*product.kernel, product.problem, batch.m);
      if (scratch + its_scratch > kernel_scratch_.n_bytes) continue;
      scratch += its_scratch;
      together[n++] = &product;
      launched |= std::uint64_t{1} << i;
    }
    IMP_CHECK((launched >> first & 1) != 0);  // reserve() sized its scratch
    if (n > 0) launch_one(batch, std::span(together).first(n), GemmFusion::none, inputs);
  }
}

void GemmRunner::run(Rows x, std::span<const LinearTerm> terms) {
  if (x.n_rows == 0) return;
  products_.clear();
  for (const LinearTerm& term : terms) products_.push_back(product_of(*term.weight, term.bias, term.out, x.n_rows));
  Inputs inputs = inputs_of(x);
  launch({.x = x, .m = x.n_rows}, products_, inputs);
}

void GemmRunner::run_gated(Rows x, const GatedTerm& term, GatedActivation kind) {
  if (x.n_rows == 0) return;
  Product gate = product_of(*term.gate, term.gate_bias, term.out, x.n_rows);
  Product up = product_of(*term.up, term.up_bias, term.out, x.n_rows);
  Inputs inputs = inputs_of(x);
  if (is_alike(gate, up) && gate.kernel->fuses) {
    const Product* const both[] = {&gate, &up};
    return launch_one({.x = x, .m = x.n_rows}, both, fusion_of(kind), inputs);
  }
  const std::int64_t n = gate.problem.n, most = gate_rows(n, x.n_rows);
  const Rows gates = {.data = reinterpret_cast<float*>(gate_.memory.get()),
                      .n_rows = static_cast<int>(most),
                      .width = static_cast<int>(n),
                      .stride = n};
  IMP_CHECK(static_cast<std::size_t>(most * n) * sizeof(float) <= gate_.n_bytes);
  for (std::int64_t first = 0; first < x.n_rows; first += most) {
    const std::int64_t n_rows = std::min(most, x.n_rows - first);
    const Rows out = part_of(term.out, first, n_rows);
    gate.term.out = gates.data;
    gate.term.out_stride = gates.stride;
    up.term.out = out.data;
    const Product both[] = {gate, up};
    Inputs of_part;
    launch({.x = part_of(x, first, n_rows), .m = static_cast<int>(n_rows)}, both, of_part);
    gated_activation(stream_, kind, part_of(gates, 0, n_rows), out, out);
  }
}

void GemmRunner::launch_experts(const Batch& batch, std::span<const ExpertTerm> terms) {
  products_.clear();
  for (const ExpertTerm& term : terms) {
    for (const ExpertKind& kind : tables_.kinds_of(*term.weights.front())) {
      Product& product = products_.emplace_back(product_of(*kind.first, nullptr, term.out, batch.experts->n_rows));
      product.term.weight = nullptr;
      product.term.experts = kind.table();
    }
  }
  Inputs inputs = inputs_of(batch.x);
  launch(batch, products_, inputs);
}

void GemmRunner::run_expert_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms) {
  if (x.n_rows == 0) return;
  IMP_CHECK(x.n_rows == rows.n_rows);
  launch_experts({.x = x, .m = rows.n_rows * rows.n_used, .experts = &rows, .sources = rows.sources}, terms);
}

void GemmRunner::run_expert_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term) {
  if (grouped.n_rows == 0) return;
  IMP_CHECK(grouped.n_rows == rows.n_rows * rows.n_used);
  launch_experts({.x = grouped, .m = grouped.n_rows, .experts = &rows}, {&term, 1});
}

}  // namespace imp::cuda
