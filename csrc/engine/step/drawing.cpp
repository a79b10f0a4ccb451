// Draws tokens and waits for them. StepExecutor also draws without waiting.
#include "engine/step/drawing.h"

namespace imp {

SampleRequest request_after(std::span<const std::int32_t> history, const Sequence& sequence, int logits_row) noexcept {
  const auto n_output = static_cast<std::int32_t>(history.size()) - sequence.base;
  return {.logits_row = logits_row,
          .params = &sequence.params,
          .history = history,
          .n_output = n_output,
          .sequence = sequence.stream,
          .index = static_cast<std::uint32_t>(n_output),
          .candidates = {}};
}

void draw_tokens(Backend& backend, Rows logits, std::span<const SampleRequest> requests,
                 std::span<SampleResult> results) {
  backend.sample(logits, requests, results);
}

}  // namespace imp
