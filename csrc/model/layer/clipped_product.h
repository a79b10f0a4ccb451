// A product whose input and output are kept within bounds.
#pragma once

#include <array>

#include "backend/backend.h"
#include "model/config/model_config.h"
#include "model/layer/row_views.h"

namespace imp {

// `bounded` has room for the input, which is not changed.
inline void clipped_linear(Backend& backend, Rows input, const LinearTerm& term, const Clip& clip, Rows bounded) {
  const Rows within = columns(bounded, 0, input.width);
  backend.clamp(input, clip.least_input, clip.greatest_input, within);
  backend.linear(within, std::array{term});
  backend.clamp(term.out, clip.least_output, clip.greatest_output, term.out);
}

}  // namespace imp
