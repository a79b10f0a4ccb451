// Turns the pixels of a part of an image into the rows that the patch embedding reads.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/arch/vision/vision_config.h"
#include "model/media_encoder.h"

namespace imp {

class Patches {
 public:
  explicit Patches(const VisionConfig& config);

  // The values of patch `patch`, by rows of the grid: three colours, one after the other, each by rows of pixels.
  void read(const MediaPart& part, int patch, std::span<float> out) const;

 private:
  int patch_size_;
  std::array<std::array<float, 256>, 3> values_;  // of each colour's bytes
};

}  // namespace imp
