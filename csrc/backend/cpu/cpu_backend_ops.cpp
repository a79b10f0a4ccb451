// The CPU backend's ops: each divides its rows among the threads.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm/cpu_linear.h"
#include "backend/cpu/kv/cpu_kv_pool.h"
#include "backend/cpu/ops/clusters.h"
#include "backend/cpu/ops/experts.h"
#include "backend/cpu/ops/recurrence.h"
#include "backend/product_check.h"
#include "base/ceil_div.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

// Least number of elements worth a task.
constexpr int kTaskElements = 4096;
// Rows of one kv head per task.
constexpr int kAppendRows = 32;

float* row_of(Rows x, int row) {
  return x.data + row * x.stride;
}

}  // namespace

template <class Body>
void CpuBackend::for_rows(int n_rows, int width, const Body& body) {
  const int per_task = std::max(1, kTaskElements / std::max(1, width));
  threads_.run(ceil_div(n_rows, per_task), [&](int task, int) {
    const int end = std::min(n_rows, (task + 1) * per_task);
    for (int row = task * per_task; row < end; ++row) body(row);
  });
}

template <class Body>
void CpuBackend::for_pieces(int n_rows, int width, const Body& body) {
  const int pieces = ceil_div(width, kTaskElements);
  if (pieces <= 1) return for_rows(n_rows, width, [&](int row) { body(row, 0, width); });
  threads_.run(n_rows * pieces, [&](int task, int) {
    const int first = task % pieces * kTaskElements;
    body(task / pieces, first, std::min(kTaskElements, width - first));
  });
}

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

void CpuBackend::rms_norm(Rows x, const Norm& norm, Rows out) {
  const OpTimer timer = run(Op::rms_norm);
  for_rows(x.n_rows, x.width, [&](int row) {
    ops_.rms_norm(row_of(x, row), norm.weight->data(), x.width, norm.epsilon, row_of(out, row));
  });
}

void CpuBackend::add_norm(Rows x, Rows y, const Norm& norm, Rows out) {
  const OpTimer timer = run(Op::add_norm);
  for_rows(x.n_rows, x.width, [&](int row) {
    ops_.add(row_of(x, row), row_of(y, row), x.width);
    ops_.rms_norm(row_of(x, row), norm.weight->data(), x.width, norm.epsilon, row_of(out, row));
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

void CpuBackend::rope_angles(std::span<const std::int32_t> positions, const Rope& rope, Rows out) {
  const OpTimer timer = run(Op::rope_angles);
  const bool has_planes = !rope.planes.empty() && std::ssize(positions) > out.n_rows;
  if (has_planes) count(Op::rope_planes);
  // A sine costs about as much as eight elements elsewhere.
  for_rows(out.n_rows, 8 * rope.dims, [&](int i) {
    const std::int32_t* const first = positions.data() + i;
    if (has_planes) {
      const PlanePositions at = {.first = first, .stride = out.n_rows, .planes = rope.planes.data()};
      return ops_.rope_planes(at, rope.frequencies.data(), rope.dims / 2, rope.magnitude, row_of(out, i));
    }
    ops_.rope_angles(*first, rope.frequencies.data(), rope.dims / 2, rope.magnitude, row_of(out, i));
  });
}

void CpuBackend::rope(Rows x, int head_dim, const Norm& norm, const Rope& rope, Rows angles) {
  const OpTimer timer = run(Op::rope);
  const auto rotate = rope.style == RopeStyle::adjacent ? ops_.rope_adjacent : ops_.rope_halves;
  for_rows(x.n_rows, x.width, [&](int row) {
    for (int i = 0; i < x.width; i += head_dim) {
      float* const head = row_of(x, row) + i;
      if (norm.weight != nullptr) ops_.rms_norm(head, norm.weight->data(), head_dim, norm.epsilon, head);
      rotate(head, row_of(angles, row), rope.dims / 2);
    }
  });
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

void CpuBackend::gated_activation(GatedActivation kind, Rows gate, Rows up, Rows out) {
  const OpTimer timer = run(Op::gated_activation);
  const auto activate = activation(kind);
  for_pieces(gate.n_rows, gate.width, [&](int row, int first, int n) {
    activate(row_of(gate, row) + first, row_of(up, row) + first, n, row_of(out, row) + first);
  });
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

void CpuBackend::add(Rows x, Rows y) {
  const OpTimer timer = run(Op::add);
  for_pieces(x.n_rows, x.width,
             [&](int row, int first, int n) { ops_.add(row_of(x, row) + first, row_of(y, row) + first, n); });
}

void CpuBackend::add_gated(Rows x, Rows y, Rows gates) {
  const OpTimer timer = run(Op::add_gated);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    ops_.add_gated(row_of(x, row) + first, row_of(y, row) + first, n, *row_of(gates, row));
  });
}

void CpuBackend::scale(Rows x, float factor) {
  const OpTimer timer = run(Op::scale);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) { ops_.scale(row_of(x, row) + first, n, factor); });
}

void CpuBackend::clamp(Rows x, float low, float high, Rows out) {
  const OpTimer timer = run(Op::clamp);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    ops_.clamp(row_of(x, row) + first, n, low, high, row_of(out, row) + first);
  });
}

void CpuBackend::standardize(Rows x, const Vector& mean, const Vector& factors) {
  const OpTimer timer = run(Op::standardize);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    ops_.standardize(row_of(x, row) + first, mean.data() + first, factors.data() + first, n);
  });
}

void CpuBackend::layer_norm(Rows x, int run_length, const Norm& norm, Rows out) {
  const OpTimer timer = run(Op::layer_norm);
  for_rows(x.n_rows, x.width, [&](int row) {
    for (int i = 0; i < x.width; i += run_length) {
      const float* const bias = norm.bias != nullptr ? norm.bias->data() + i : nullptr;
      ops_.layer_norm(row_of(x, row) + i, norm.weight->data() + i, bias, run_length, norm.epsilon,
                      row_of(out, row) + i);
    }
  });
}

void CpuBackend::activate(PlainActivation kind, const imp::XieluParams& params, Rows x) {
  const OpTimer timer = run(Op::activate);
  const XieluParams xielu = {params.positive, params.negative, params.slope, params.largest};
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    float* const piece = row_of(x, row) + first;
    switch (kind) {
      case PlainActivation::gelu_tanh:
        return ops_.plain_gelu_tanh(piece, n);
      case PlainActivation::gelu_erf:
        return ops_.gelu_erf(piece, n);
      case PlainActivation::relu_squared:
        return ops_.relu_squared(piece, n);
      case PlainActivation::xielu:
        return ops_.xielu(piece, n, xielu);
      case PlainActivation::tanh:
        return ops_.tanh(piece, n);
    }
  });
}

void CpuBackend::clamped_activation(const ClampedSilu& kind, Rows gate, Rows up, Rows out) {
  const OpTimer timer = run(Op::clamped_activation);
  for_pieces(gate.n_rows, gate.width, [&](int row, int first, int n) {
    ops_.clamped_silu(row_of(gate, row) + first, row_of(up, row) + first, n, kind.limit, kind.slope,
                      row_of(out, row) + first);
  });
}

void CpuBackend::scale_by_position(Rows x, std::span<const std::int32_t> positions, const PositionScale& scale) {
  const OpTimer timer = run(Op::scale_by_position);
  for_rows(x.n_rows, x.width, [&](int row) {
    const double turns = positions[static_cast<std::size_t>(row)] / scale.period;
    const double factor = 1 + static_cast<double>(scale.growth) * std::log1p(turns);
    if (factor != 1) ops_.scale(row_of(x, row), x.width, static_cast<float>(factor));
  });
}

void CpuBackend::norm_heads(Rows x, int run_length, const Norm& norm, Rows out) {
  const OpTimer timer = run(Op::norm_heads);
  const float* const weight = norm.weight != nullptr ? norm.weight->data() : nullptr;
  for_rows(x.n_rows, x.width, [&](int row) {
    for (int i = 0; i < x.width; i += run_length) {
      ops_.rms_norm(row_of(x, row) + i, weight, run_length, norm.epsilon, row_of(out, row) + i);
    }
  });
}

void CpuBackend::multiply_sigmoid(Rows x, Rows gates) {
  const OpTimer timer = run(Op::multiply_sigmoid);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    ops_.multiply_sigmoid(row_of(x, row) + first, row_of(gates, row) + first, n);
  });
}

void CpuBackend::rms_norm_gated(Rows x, const Norm& norm, Rows gates, Rows out) {
  const OpTimer timer = run(Op::rms_norm_gated);
  const int n = norm.weight->size();
  for_rows(x.n_rows, x.width, [&](int row) {
    for (int i = 0; i < x.width; i += n) {
      float* const to = row_of(out, row) + i;
      ops_.rms_norm(row_of(x, row) + i, norm.weight->data(), n, norm.epsilon, to);
      ops_.silu(row_of(gates, row) + i, to, n, to);
    }
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

void CpuBackend::soft_cap(Rows x, float cap) {
  const OpTimer timer = run(Op::soft_cap);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) { ops_.soft_cap(row_of(x, row) + first, n, cap); });
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
