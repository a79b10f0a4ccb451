// The CUDA backend's ops: each collects addresses and shapes and launches kernels.
#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/gemm/cuda_linear.h"
#include "backend/cuda/kv/cuda_kv_pool.h"
#include "backend/cuda/kv/kv_append.h"
#include "backend/cuda/op_scope.h"
#include "backend/cuda/ops/cuda_ops.h"
#include "backend/product_check.h"
#include "base/error.h"

namespace imp::cuda {
namespace {

const float* data_of(const Vector* vector) noexcept {
  return vector != nullptr ? vector->data() : nullptr;
}

}  // namespace

void CudaBackend::embed(std::span<const std::int32_t> tokens, const Linear& table, float scale, Rows out) {
  if (tokens.empty()) return;
  const OpScope scope = run(Op::embed);
  const auto& rows = static_cast<const CudaLinear&>(table);
  cuda::embed(stream_, inputs_.tokens(tokens), sampler_.device_results(), static_cast<int>(tokens.size()), rows.bytes(),
              rows.problem().weight, rows.plan().layout, rows.problem().k, scale, out);
}

void CudaBackend::rms_norm(Rows x, const Norm& norm, Rows out) {
  const OpScope scope = run(Op::rms_norm);
  cuda::rms_norm(stream_, x, norm.weight->data(), norm.epsilon, out, gemm_.reserve_prepared(out, norm.reader));
}

void CudaBackend::add_norm(Rows x, Rows y, const Norm& norm, Rows out) {
  const OpScope scope = run(Op::add_norm);
  cuda::add_norm(stream_, x, y, norm.weight->data(), norm.epsilon, out, gemm_.reserve_prepared(out, norm.reader));
}

void CudaBackend::linear(Rows x, std::span<const LinearTerm> terms) {
  if (x.n_rows == 0 || terms.empty()) return;
  for (const LinearTerm& term : terms) check_product(term, x);
  const OpScope scope = run(terms.front().weight->plan().kernel_for(x.n_rows).name);
  gemm_.run(x, terms);
}

void CudaBackend::gated_linear(Rows x, const GatedTerm& term, GatedActivation kind) {
  if (x.n_rows == 0) return;
  check_product(term, x);
  const OpScope scope = run(term.gate->plan().kernel_for(x.n_rows).name);
  gemm_.run_gated(x, term, kind);
}

void CudaBackend::rope_angles(std::span<const std::int32_t> positions, const Rope& rope, Rows out) {
  if (positions.empty()) return;
  IMP_CHECK(std::ssize(positions) == out.n_rows);  // one plane
  const OpScope scope = run(Op::rope_angles);
  cuda::rope_angles(stream_, inputs_.positions(positions), static_cast<int>(positions.size()), rope.frequencies,
                    rope.magnitude, out);
}

void CudaBackend::rope(Rows x, int head_dim, const Norm& norm, const Rope& rope, Rows angles) {
  const OpScope scope = run(Op::rope);
  cuda::rope(stream_, x, head_dim, data_of(norm.weight), norm.epsilon, rope.style, rope.dims / 2, angles);
}

void CudaBackend::append_kv(KvPool& pool, int layer, std::span<const SequenceRows> sequences, Rows k, Rows v) {
  if (k.n_rows == 0) return;
  const OpScope scope = run(Op::append_kv);
  const auto& cache = static_cast<const CudaKvPool&>(pool);
  append_rows(stream_, cache.type(), cache.layer_view(layer), inputs_.sequences(sequences), k, v);
}

void CudaBackend::rope_append(KvPool& pool, int layer, std::span<const SequenceRows> sequences, int head_dim,
                              const Rope& rope, Rows angles, const RopeTerm& q, const RopeTerm& k, Rows v) {
  if (q.x.n_rows == 0) return;
  const OpScope scope = run(Op::rope_append);
  const auto& cache = static_cast<const CudaKvPool&>(pool);
  rope_append_rows(stream_, cache.type(),
                   {.q = q.x,
                    .k = k.x,
                    .v = v,
                    .angles = angles,
                    .q_norm = {data_of(q.norm.weight), q.norm.epsilon},
                    .k_norm = {data_of(k.norm.weight), k.norm.epsilon},
                    .rope = {head_dim, rope.dims / 2, rope.style == RopeStyle::adjacent},
                    .cache = cache.layer_view(layer),
                    .sequences = inputs_.sequences(sequences)});
}

void CudaBackend::attend(const KvPool& pool, int layer, std::span<const SequenceRows> sequences,
                         const AttentionParams& params, Rows q, Rows out) {
  if (q.n_rows == 0) return;
  IMP_CHECK(params.sinks == nullptr);
  IMP_CHECK(std::ranges::none_of(sequences, [&](const SequenceRows& one) { return sees_ahead(params, one); }));
  const bool only_decode =
      std::ranges::all_of(sequences, [](const SequenceRows& sequence) { return sequence.n_rows == 1; });
  const OpScope scope = run(only_decode ? Op::attend_decode : Op::attend_prefill);
  attention_.run(static_cast<const CudaKvPool&>(pool), layer, sequences, inputs_.sequences(sequences), params, q, out);
}

void CudaBackend::gated_activation(GatedActivation kind, Rows gate, Rows up, Rows out) {
  const OpScope scope = run(Op::gated_activation);
  cuda::gated_activation(stream_, kind, gate, up, out);
}

void CudaBackend::route_experts(Rows scores, const ExpertRouting& routing, const ExpertRows& out) {
  const OpScope scope = run(Op::route_experts);
  cuda::route_experts(stream_, scores, routing, out);
}

void CudaBackend::expert_linear_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms) {
  if (x.n_rows == 0 || terms.empty()) return;
  for (const ExpertTerm& term : terms) check_product(term, x);
  IMP_CHECK(std::ranges::none_of(terms, &ExpertTerm::biases));
  const OpScope scope = run(terms.front().weights.front()->plan().kernel_for(1).name);
  gemm_.run_expert_in(x, rows, terms);
}

void CudaBackend::expert_linear_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term) {
  if (grouped.n_rows == 0) return;
  check_product(term, grouped);
  IMP_CHECK(term.biases == nullptr);
  const OpScope scope = run(term.weights.front()->plan().kernel_for(1).name);
  gemm_.run_expert_out(grouped, rows, term);
}

void CudaBackend::mix_experts(Rows grouped, const ExpertRows& rows, Rows out) {
  const OpScope scope = run(Op::mix_experts);
  cuda::mix_experts(stream_, grouped, rows, out);
}

void CudaBackend::add(Rows x, Rows y) {
  const OpScope scope = run(Op::add);
  cuda::add(stream_, x, y);
}

void CudaBackend::add_gated(Rows x, Rows y, Rows gates) {
  const OpScope scope = run(Op::add_gated);
  cuda::add_gated(stream_, x, y, gates);
}

void CudaBackend::soft_cap(Rows x, float cap) {
  const OpScope scope = run(Op::soft_cap);
  cuda::soft_cap(stream_, x, cap);
}

void CudaBackend::gather_rows(Rows x, std::span<const std::int32_t> rows, Rows out) {
  if (rows.empty()) return;
  const OpScope scope = run(Op::gather_rows);
  cuda::gather_rows(stream_, x, inputs_.logits_rows(rows), out);
}

void CudaBackend::sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) {
  if (requests.empty()) return;
  const OpScope scope = run(Op::sample);
  sampler_.sample(logits, requests, results);
  throw_if_failed();
}

bool CudaBackend::begin_sample(Rows logits, std::span<const SampleRequest> requests) {
  const OpScope scope = run(Op::sample);
  return sampler_.begin(logits, requests);
}

void CudaBackend::finish_sample(std::span<const SampleRequest> requests, std::span<SampleResult> results) {
  sampler_.finish(requests, results);
  throw_if_failed();
}

void CudaBackend::score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) {
  if (requests.empty()) return;
  const OpScope scope = run(Op::score);
  sampler_.score(logits, requests, results);
  throw_if_failed();
}

void CudaBackend::read_row(Rows logits, int row, std::span<float> out) {
  const OpScope scope = run(Op::read_row);
  copy_to_host(stream_, out.data(), logits.data + row * logits.stride, out.size_bytes());
  finish();
}

void CudaBackend::copy_block(KvPool& pool, std::int32_t from, std::int32_t to) {
  const OpScope scope = run(Op::copy_block);
  auto& cache = static_cast<CudaKvPool&>(pool);
  for (int layer = 0; layer < cache.geometry().n_layers(); ++layer) {
    std::byte* const blocks = cache.layer(layer);
    const auto at = [&](std::int32_t block) { return blocks + static_cast<std::size_t>(block) * cache.block_bytes(); };
    copy_on_device(stream_, at(to), at(from), cache.block_bytes());
  }
  throw_if_failed();
}

}  // namespace imp::cuda
