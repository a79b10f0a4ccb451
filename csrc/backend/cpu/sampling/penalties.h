// The sampler's adjustments of a row of logits: penalties, DRY, bias and masks.
#pragma once

#include <span>

#include "backend/cpu/sampling/sampling_scratch.h"
#include "backend/sampler.h"

namespace imp::cpu {

// Applies in this order: repetition penalty, frequency and presence penalty, DRY, logit bias (each result stays
// finite), then the masks, which set excluded logits to minus infinity.
void adjust_logits(const SampleRequest& request, std::span<float> logits, const SamplingScratch& scratch);

}  // namespace imp::cpu
