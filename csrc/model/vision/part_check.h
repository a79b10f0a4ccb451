// Whether a tower reads a part of a medium.
#pragma once

#include "model/arch/vision/vision_config.h"
#include "model/media_encoder.h"

namespace imp {

// Throws FieldInvalid if the part has a size that the tower does not read, or other pixels or cells than its size.
void check_part(const VisionConfig& config, const MediaPart& part);

}  // namespace imp
