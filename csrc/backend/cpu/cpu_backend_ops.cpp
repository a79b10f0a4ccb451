// The CPU backend's ops that move rows or combine several: products, attention, experts, recurrence, sampling.
#include <algorithm>
#include <array>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm/cpu_linear.h"
#include "backend/cpu/kv/cpu_kv_pool.h"
#include "backend/cpu/ops/clusters.h"
#include "backend/cpu/ops/experts.h"
#include "backend/cpu/ops/recurrence.h"
#include "backend/cpu/row_tasks.h"
#include "backend/product_check.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

// Rows of one kv head per task.
constexpr int kAppendRows = 32;

}  // namespace

void CpuBackend::embed(std::span<const std::int32_t> tokens, const Linear& table, float scale, Rows out) {
  const OpTimer timer = run(Op::embed);
  const auto& rows = static_cast<const CpuLinear&>(table);
  IMP_CHECK(rows.row_bytes() <= embed_row_bytes_);
  threads_.run(static_cast<int>(tokens.size()), [&](int i, int thread) {
    std::byte* scratch = embed_scratch_.get() + static_cast<std::size_t>(thread) * embed_row_bytes_;
    rows.decode_row(tokens[static_cast<std::size_t>(i)], scratch, row_of(out, i));
    if (scale != 1) ops_.scale(row_of(out, i), out.width, scale);
  });
}

void CpuBackend::linear(Rows x, std::span<const LinearTerm> terms) {
  if (x.n_rows == 0 || terms.empty()) return;
  for (const LinearTerm& term : terms) check_product(term, x);
  const OpTimer timer(trace_, terms.front().weight->plan().kernel_for(x.n_rows).name);
  gemm_.run(x, terms);
}

void CpuBackend::gated_linear(Rows x, const GatedTerm& term, GatedActivation kind) {
  if (x.n_rows == 0) return;
  check_product(term, x);
  const OpTimer timer(trace_, term.gate->plan().kernel_for(x.n_rows).name);
  gemm_.run_gated(x, term, activation(kind));
}

void CpuBackend::append_kv(KvPool& pool, int layer, std::span<const SequenceRows> sequences, Rows k, Rows v) {
  const OpTimer timer = run(Op::append_kv);
  const auto& cache = static_cast<const CpuKvPool&>(pool);
  const int block_tokens = cache.geometry().block_tokens;
  const KvLayer& sizes = cache.geometry().layer(layer);
  const int n_kv_heads = sizes.n_kv_heads, head_dim = sizes.head_dim;
  const auto append_keys = ops_.keys_of(sizes.types.k).append;
  const auto append_values = ops_.values_of(sizes.types.v).append;
  const auto position_of = [](const SequenceRows& sequence, int row) {
    return sequence.first_position + row - sequence.first_row;
  };
  // Rows [first, end) of the batch, which belong to one panel.
  const auto append_panel = [&](const SequenceRows& sequence, int first, int end, int head) {
    const int position = position_of(sequence, first);
    const std::int32_t block = sequence.blocks[static_cast<std::size_t>(position / block_tokens)];
    const int panel = position % block_tokens / kPanelTokens;
    const auto rows_of = [&](Rows x) {
      return PanelRows{.first = row_of(x, first) + head * head_dim,
                       .stride = x.stride,
                       .head_dim = head_dim,
                       .first_token = position % kPanelTokens,
                       .n_tokens = end - first};
    };
    append_keys(rows_of(k), cache.k_panel(layer, block, head, panel));
    append_values(rows_of(v), cache.v_panel(layer, block, head, panel));
  };
  // The first row from `row` on that starts a panel or a sequence. Tokens of a panel share words, so one task must
  // write them all.
  const auto panel_start = [&](const SequenceRows& sequence, int row) {
    if (row <= sequence.first_row) return sequence.first_row;
    const int begun = position_of(sequence, row) % kPanelTokens;
    return std::min(row + (kPanelTokens - begun) % kPanelTokens, sequence.first_row + sequence.n_rows);
  };
  threads_.run(ceil_div(k.n_rows, kAppendRows) * n_kv_heads, [&](int task, int) {
    const int head = task % n_kv_heads;
    const int begin = task / n_kv_heads * kAppendRows;
    for (const SequenceRows& sequence : sequences) {
      if (begin >= sequence.first_row + sequence.n_rows || begin + kAppendRows <= sequence.first_row) continue;
      const int end = panel_start(sequence, begin + kAppendRows);
      for (int row = panel_start(sequence, begin), next = row; row < end; row = next) {
        next = std::min(end, row + kPanelTokens - position_of(sequence, row) % kPanelTokens);
        append_panel(sequence, row, next, head);
      }
    }
  });
}

void CpuBackend::attend(const KvPool& pool, int layer, std::span<const SequenceRows> sequences,
                        const AttentionParams& params, Rows q, Rows out) {
  const auto is_decode = [](const SequenceRows& sequence) { return sequence.n_rows == 1; };
  const bool only_decode = std::ranges::all_of(sequences, is_decode);
  if (std::ranges::any_of(sequences, is_decode)) count(Op::attend_decode);
  if (!only_decode) count(Op::attend_prefill);
  if (params.sinks != nullptr) count(Op::attend_sinks);
  const auto is_ahead = [&](const SequenceRows& sequence) { return sees_ahead(params, sequence); };
  if (std::ranges::any_of(sequences, is_ahead)) count(Op::attend_ahead);
  // One pass over sequences of both kinds. It is timed as prefill, which takes longer, if there is any.
  const OpTimer timer = timed(only_decode ? Op::attend_decode : Op::attend_prefill);
  attention_.run(static_cast<const CpuKvPool&>(pool), layer, sequences, params, q, out);
}

void CpuBackend::attention_mass(const KvPool& pool, int layer, const SequenceRows& sequence,
                                const AttentionParams& params, Rows q, int first_key, std::span<float> into) {
  const OpTimer timer = run(Op::attention_mass);
  attention_mass_.run(static_cast<const CpuKvPool&>(pool), layer, sequence, params, q, first_key, into);
}

void CpuBackend::route_experts(Rows scores, const ExpertRouting& routing, const ExpertRows& out) {
  const OpTimer timer = run(Op::route_experts);
  for_rows(scores.n_rows, scores.width * routing.n_used, [&](int row) {
    const std::ptrdiff_t first = std::ptrdiff_t{row} * routing.n_used;
    choose_experts(ops_, routing, row_of(scores, row), out.experts + first, out.weights + first);
  });
  group_by_expert(out);
}

std::string_view CpuBackend::kernel_name(const ExpertTerm& term, const ExpertRows& rows) noexcept {
  const int average = std::max(1, rows.n_rows * rows.n_used / rows.n_experts);
  return term.weights.front()->plan().kernel_for(average).name;
}

void CpuBackend::expert_linear_in(Rows x, const ExpertRows& rows, std::span<const ExpertTerm> terms) {
  if (x.n_rows == 0 || terms.empty()) return;
  for (const ExpertTerm& term : terms) check_product(term, x);
  const OpTimer timer(trace_, kernel_name(terms.front(), rows));
  if (std::ranges::any_of(terms, &ExpertTerm::biases)) count(Op::expert_biases);
  gemm_.run_expert_in(x, rows, terms);
}

void CpuBackend::expert_linear_out(Rows grouped, const ExpertRows& rows, const ExpertTerm& term) {
  if (grouped.n_rows == 0) return;
  check_product(term, grouped);
  const OpTimer timer(trace_, kernel_name(term, rows));
  if (term.biases != nullptr) count(Op::expert_biases);
  gemm_.run_expert_out(grouped, rows, term);
}

void CpuBackend::mix_experts(Rows grouped, const ExpertRows& rows, Rows out) {
  const OpTimer timer = run(Op::mix_experts);
  for_pieces(out.n_rows, out.width, [&](int row, int first, int n) {
    const std::ptrdiff_t at = std::ptrdiff_t{row} * rows.n_used;
    const WeightedRows parts = {grouped.data + first, grouped.stride, rows.grouped_rows + at, rows.weights + at,
                                rows.n_used};
    ops_.mix(parts, n, row_of(out, row) + first);
  });
}

void CpuBackend::scale_experts(const ExpertRows& rows, const Vector& factors) {
  const OpTimer timer = run(Op::scale_experts);
  const int n_chosen = rows.n_rows * rows.n_used;
  for (int i = 0; i < n_chosen; ++i) rows.weights[i] *= factors.data()[rows.experts[i]];
}

void CpuBackend::short_conv(KvPool& pool, int layer, std::span<const SequenceRows> sequences, Rows x,
                            const Vector& weight, Rows out) {
  const OpTimer timer = run(Op::short_conv);
  run_short_conv(ops_, threads_, {static_cast<CpuKvPool&>(pool), layer, sequences}, x, weight.data(), out);
}

void CpuBackend::delta_rule(KvPool& pool, int layer, std::span<const SequenceRows> sequences, const DeltaRule& rule,
                            const DeltaRows& rows, Rows out) {
  const OpTimer timer = run(Op::delta_rule);
  run_delta_rule(ops_, threads_, {static_cast<CpuKvPool&>(pool), layer, sequences}, rule, rows, out);
}

void CpuBackend::gather_rows(Rows x, std::span<const std::int32_t> rows, Rows out) {
  const OpTimer timer = run(Op::gather_rows);
  for_rows(static_cast<int>(rows.size()), x.width,
           [&](int i) { std::copy_n(row_of(x, rows[static_cast<std::size_t>(i)]), x.width, row_of(out, i)); });
}

void CpuBackend::write_rows(std::span<const float> values, Rows out) {
  const OpTimer timer = run(Op::write_rows);
  IMP_CHECK(std::ssize(values) == std::ptrdiff_t{out.n_rows} * out.width);
  for_rows(out.n_rows, out.width,
           [&](int row) { std::copy_n(values.data() + std::ptrdiff_t{row} * out.width, out.width, row_of(out, row)); });
}

void CpuBackend::mean_rows(Rows x, std::span<const RowRun> runs, Rows out) {
  const OpTimer timer = run(Op::mean_rows);
  for_pieces(static_cast<int>(runs.size()), x.width, [&](int i, int first, int n) {
    const RowRun& rows = runs[static_cast<std::size_t>(i)];
    float* const to = row_of(out, i) + first;
    std::copy_n(row_of(x, rows.first) + first, n, to);
    for (int row = 1; row < rows.n; ++row) ops_.add(to, row_of(x, rows.first + row) + first, n);
    if (rows.n > 1) ops_.scale(to, n, 1.0F / static_cast<float>(rows.n));
  });
}

void CpuBackend::spread_columns(Rows x, std::span<const std::int32_t> columns, Rows out) {
  const OpTimer timer = run(Op::spread_columns);
  for_rows(x.n_rows, out.width, [&](int row) {
    const float* const from = row_of(x, row);
    float* const to = row_of(out, row);
    std::fill_n(to, out.width, kUnlikelyLogit);
    for (std::size_t i = 0; i < columns.size(); ++i) to[columns[i]] = from[i];
  });
}

void CpuBackend::clustered_product(Rows x, Rows scores, int n_used, std::span<const std::int32_t> rows,
                                   const Linear& table, Rows out) {
  const OpTimer timer = run(Op::clustered_product);
  const auto& weight = static_cast<const CpuLinear&>(table);
  IMP_CHECK(weight.row_bytes() <= embed_row_bytes_ && n_used <= std::min(scores.width, kMaxClustersUsed));
  const std::size_t size = rows.size() / static_cast<std::size_t>(scores.width);
  std::array<int, kMaxClustersUsed> greatest;
  for (int row = 0; row < x.n_rows; ++row) {
    find_greatest(row_of(scores, row), scores.width, std::span(greatest).first(static_cast<std::size_t>(n_used)));
    float* const to = row_of(out, row);
    std::fill_n(to, out.width, kUnlikelyLogit);
    threads_.run(n_used, [&](int i, int thread) {
      std::byte* scratch = embed_scratch_.get() + static_cast<std::size_t>(thread) * embed_row_bytes_;
      const auto cluster = static_cast<std::size_t>(greatest[static_cast<std::size_t>(i)]);
      for (const std::int32_t each : rows.subspan(cluster * size, size)) {
        to[each] = product_of_row(ops_, weight, each, row_of(x, row), scratch);
      }
    });
  }
}

void CpuBackend::sample(Rows logits, std::span<const SampleRequest> requests, std::span<SampleResult> results) {
  const OpTimer timer = run(Op::sample);
  sampler_.sample(logits, requests, results);
}

void CpuBackend::score(Rows logits, std::span<const ScoreRequest> requests, std::span<SampleResult> results) {
  const OpTimer timer = run(Op::score);
  sampler_.score(logits, requests, results);
}

void CpuBackend::read_row(Rows logits, int row, std::span<float> out) {
  const OpTimer timer = run(Op::read_row);
  std::copy_n(row_of(logits, row), logits.width, out.begin());
}

void CpuBackend::copy_block(KvPool& pool, std::int32_t from, std::int32_t to) {
  const OpTimer timer = run(Op::copy_block);
  auto& cache = static_cast<CpuKvPool&>(pool);
  threads_.run(cache.geometry().n_layers(), [&](int layer, int) {
    std::ranges::copy(cache.k_block(layer, from), cache.k_block(layer, to).begin());
    std::ranges::copy(cache.v_block(layer, from), cache.v_block(layer, to).begin());
  });
}

}  // namespace imp::cpu
