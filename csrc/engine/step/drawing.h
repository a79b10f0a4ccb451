// Draws tokens: for steps, and for drafters that compute.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "engine/sequence/sequence.h"

namespace imp {

// The request for the output of the sequence that follows `history`, which is its prompt and its outputs so far.
SampleRequest request_after(std::span<const std::int32_t> history, const Sequence& sequence, int logits_row) noexcept;

void draw_tokens(Backend& backend, Rows logits, std::span<const SampleRequest> requests,
                 std::span<SampleResult> results);

}  // namespace imp
