// Checks the engine's options, and finds what the checks of commands need.
#pragma once

#include "engine/data/engine_options.h"
#include "engine/schedule/admission_control.h"
#include "model/forward_pass.h"
#include "model/media_encoder.h"

namespace imp {

// Throws InvalidArgument if the options contradict each other, the model, the encoder (null: there is none) or the
// pool.
void validate(const EngineOptions& options, const ForwardPass& forward, const MediaEncoder* encoder = nullptr);

// What the checks of commands need to know.
AdmissionFacts admission_facts(const EngineOptions& options, const ForwardPass& forward, const MediaEncoder* encoder,
                               const HashSecret& secret);

}  // namespace imp
