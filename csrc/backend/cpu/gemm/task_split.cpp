// Cutting products into tasks.
#include <algorithm>

#include "backend/cpu/gemm/gemm_runner.h"
#include "backend/cpu/gemm/layouts.h"

namespace imp::cpu {

void split_terms(std::span<const TermSize> terms, int n_threads, std::vector<GemmTask>& tasks) {
  tasks.clear();
  const auto panels_of = [](const TermSize& term) { return (term.n + kPanelRows - 1) / kPanelRows; };
  std::int64_t left = 0;
  for (const TermSize& term : terms) left += panels_of(term) * term.cost;
  // A task takes its thread's share of half of what is left, and no less than a 32nd of a thread's whole share: about
  // 20 tasks per thread at most.
  const std::int64_t least = left / (32 * n_threads);
  for (std::size_t t = 0; t < terms.size(); ++t) {
    const std::int64_t n_panels = panels_of(terms[t]);
    for (std::int64_t panel = 0; panel < n_panels;) {
      const std::int64_t target = n_threads == 1 ? left : std::max(left / (2 * n_threads), least);
      // Pairs of panels, which kernels take together.
      const std::int64_t wanted = std::max(target / terms[t].cost / 2 * 2, std::int64_t{2});
      const std::int64_t count = std::min(wanted, n_panels - panel);
      tasks.push_back({static_cast<int>(t), panel * kPanelRows, std::min((panel + count) * kPanelRows, terms[t].n)});
      panel += count;
      left -= count * terms[t].cost;
    }
  }
}

}  // namespace imp::cpu
