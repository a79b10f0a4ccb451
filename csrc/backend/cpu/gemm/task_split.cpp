// Divides products into tasks.
#include <algorithm>

#include "backend/cpu/gemm/gemm_runner.h"
#include "backend/cpu/gemm/layouts.h"
#include "base/ceil_div.h"

namespace imp::cpu {

void split_terms(std::span<const TermSize> terms, int n_threads, std::vector<GemmTask>& tasks) {
  tasks.clear();
  const auto panels_of = [](const TermSize& term) { return ceil_div(term.n, kPanelRows); };
  std::int64_t left = 0;
  for (const TermSize& term : terms) left += panels_of(term) * term.cost;
  // Guided self-scheduling: in each round every thread gets one task, three quarters of the remaining work in all, down
  // to tasks of a 32nd of a thread's share. So each thread reads one long stream, and others help a slow one.
  const std::int64_t least = std::max(left / (32 * n_threads), std::int64_t{1});
  std::int64_t target = 0;
  int dealt = 0;  // number of tasks made in this round
  for (std::size_t t = 0; t < terms.size(); ++t) {
    const std::int64_t n_panels = panels_of(terms[t]);
    for (std::int64_t panel = 0; panel < n_panels;) {
      if (dealt == 0) target = n_threads == 1 ? left : std::max(left * 3 / (4 * n_threads), least);
      const std::int64_t wanted = (target + terms[t].cost - 1) / terms[t].cost;
      const std::int64_t count = std::min(wanted, n_panels - panel);
      tasks.push_back({static_cast<int>(t), panel * kPanelRows, std::min((panel + count) * kPanelRows, terms[t].n)});
      panel += count;
      left -= count * terms[t].cost;
      dealt = (dealt + 1) % n_threads;
    }
  }
}

}  // namespace imp::cpu
