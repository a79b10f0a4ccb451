// Operations on one sequence.
#include "engine/sequence/sequence.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace imp {

const OutputMask* Run::mask(std::int32_t output) const noexcept {
  const auto found = std::ranges::find(masks, output, &OutputMask::output);
  return found == masks.end() ? nullptr : &*found;
}

int Run::n_given() const noexcept {
  int n = 0;
  if (given.output != n_outputs) return 0;
  for (const std::int32_t token : given.tokens) {
    const OutputMask* own = mask(n_outputs + n);
    const OutputMask* next = mask(n_outputs + n + 1);
    // If the run ends behind the guess, there is nothing to draw from its row.
    if (own == nullptr || own->end || !allows(own->allowed, token) || next == nullptr || next->end) break;
    ++n;
  }
  return n;
}

void Run::count_output(std::int32_t token) {
  const auto place = static_cast<std::size_t>(n_outputs - given.output);
  const bool is_assumed = !may_ask || (place < given.tokens.size() && given.tokens[place] == token);
  std::erase_if(masks, [&](const OutputMask& mask) { return !is_assumed || mask.output <= n_outputs; });
  ++n_outputs;
  section.count(token);
}

bool Run::may_draw() const noexcept {
  if (limits.max_outputs == 0) return true;
  if (constrained && mask(n_outputs) == nullptr) return false;
  return std::ranges::all_of(siblings, [](const Sequence* sibling) { return sibling->run->may_draw(); });
}

std::optional<std::int32_t> Sequence::pending() const noexcept {
  return n_left() > 0 ? std::optional(tokens.back()) : std::nullopt;
}

int Sequence::n_evaluable() const noexcept {
  for (const MediaSpan& span : media.from(held)) {
    if (!span.is_encoded) return std::max(0, span.first - held);
  }
  return n_left();
}

void Sequence::set_sampler(const SamplingOptions& options) {
  sampler = options;
  params = sampler.params();
}

void Sequence::cut_tokens(int n_tokens) {
  const auto n_kept = static_cast<std::size_t>(n_tokens);
  const std::size_t n_of_history = n_kept + static_cast<std::size_t>(sparse ? sparse->shift : 0);
  ngrams.truncate(history(), n_of_history);
  tokens.resize(n_kept);
  media.truncate(n_tokens);
  if (sparse) sparse->history.resize(n_of_history);
}

void Sequence::append(std::int32_t token) {
  tokens.push_back(token);
  if (sparse) sparse->history.push_back(token);
}

void Sequence::append_guess(std::int32_t token) {
  append(token);
  ++n_guesses;
}

void Sequence::drop_guesses() {
  const auto n_dropped = static_cast<std::size_t>(n_guesses);
  tokens.resize(tokens.size() - n_dropped);
  if (sparse) sparse->history.resize(sparse->history.size() - n_dropped);
  n_guesses = 0;
}

void Sequence::make_sparse(int n_dense, std::vector<std::int32_t> kept) {
  SparsePrompt made;
  made.history.reserve(tokens.capacity());
  made.history.assign(tokens.begin(), tokens.end());
  made.n_dense = n_dense;
  made.kept = std::move(kept);
  auto to = tokens.begin() + n_dense;
  for (const std::int32_t position : made.kept) *to++ = made.history[static_cast<std::size_t>(position)];
  tokens.erase(to, tokens.end());
  made.shift = static_cast<int>(made.history.size() - tokens.size());
  run->start = static_cast<int>(tokens.size());
  sparse = std::move(made);
}

void Sequence::make_dense() noexcept {
  if (!sparse) return;
  tokens.assign(sparse->history.begin(), sparse->history.end());
  run->start = static_cast<int>(tokens.size());
  sparse.reset();
}

void Sequence::keep_outputs(int start, int n_kept) {
  // The client chooses n_kept, so start + n_kept may overflow.
  if (n_kept > static_cast<int>(tokens.size()) - start) return;
  cut_tokens(start + n_kept);
  held = std::min(held, start + std::max(n_kept - 1, 0));
}

std::vector<Sequence*> Sequence::detach_siblings() {
  std::vector<Sequence*> siblings = std::move(run->siblings);
  run->siblings.clear();
  for (Sequence* sibling : siblings) sibling->run->leader = nullptr;
  return siblings;
}

void Sequence::restore() {
  BeforeRun& before = run->before;
  make_dense();
  held = before.held;
  cut_tokens(before.held);
  if (before.pending) tokens.push_back(*before.pending);
  base = before.base;
  if (!before.sampler) return;
  sampler = std::move(*before.sampler);  // a move, since a copy needs memory
  params = sampler.params();
}

}  // namespace imp
