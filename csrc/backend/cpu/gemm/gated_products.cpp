// Gated products: a task computes both products for a range of outputs and combines them while they are in a CPU cache.
#include <algorithm>

#include "backend/cpu/gemm/gemm_runner.h"
#include "backend/cpu/gemm/layouts.h"
#include "base/error.h"

namespace imp::cpu {
namespace {

// Outputs of one product per task: with the other product's outputs and the weights they fill an L2 cache.
constexpr std::int64_t kFloatsAtOnce = 1 << 16;

std::int64_t outputs_at_once(int n_rows) {
  return std::max(kPanelRows, kFloatsAtOnce / n_rows / kPanelRows * kPanelRows);
}

}  // namespace

std::size_t GemmRunner::gated_floats(int max_rows) {
  return static_cast<std::size_t>(std::max(kFloatsAtOnce, kPanelRows * max_rows));
}

void GemmRunner::run_gated_task(const GemmProduct& gate, const GemmProduct& up, Activate activate, const GemmTask& task,
                                int thread) const {
  const Rows out = gate.out;
  const std::int64_t at_once = outputs_at_once(out.n_rows);
  float* const ups = reinterpret_cast<float*>(gated_.get()) + static_cast<std::size_t>(thread) * gated_floats_;
  for (std::int64_t begin = task.n_begin; begin < task.n_end; begin += at_once) {
    const std::int64_t end = std::min(begin + at_once, task.n_end);
    float* const gates = out.data + begin;
    run_outputs(gate, begin, end, gates, out.stride, thread);
    run_outputs(up, begin, end, ups, at_once, thread);
    for (int row = 0; row < out.n_rows; ++row) {
      float* const to = gates + row * out.stride;
      activate(to, ups + row * at_once, static_cast<int>(end - begin), to);
    }
  }
}

void GemmRunner::run_gated(Rows x, const GatedTerm& term, Activate activate) {
  if (x.n_rows == 0) return;
  IMP_CHECK(gated_floats(x.n_rows) <= gated_floats_);
  Inputs inputs;
  begin();
  const GemmProduct gate = product_of(x, {term.gate, term.gate_bias, term.out}, inputs);
  const GemmProduct up = product_of(x, {term.up, term.up_bias, term.out}, inputs);
  count(*gate.kernel);
  count(*up.kernel);
  sizes_.push_back(
      {gate.weight->problem().n, static_cast<std::int64_t>(gate.weight->row_bytes() + up.weight->row_bytes())});
  split_terms(sizes_, pool_.n_threads(), tasks_);
  pool_.run(static_cast<int>(tasks_.size()), [&](int task, int thread) {
    run_gated_task(gate, up, activate, tasks_[static_cast<std::size_t>(task)], thread);
  });
}

}  // namespace imp::cpu
