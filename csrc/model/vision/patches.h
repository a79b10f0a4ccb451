// Turns the pixels of a tile into the rows that the patch embedding reads.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "model/arch/vision/vision_config.h"

namespace imp {

class Patches {
 public:
  explicit Patches(const VisionConfig& config);

  // The values of patch `patch` of a tile [tile_size, tile_size, 3]: three colours, one after the other, each by rows.
  void read(std::span<const std::uint8_t> pixels, int patch, std::span<float> out) const;

 private:
  int tile_size_, patch_size_, patches_a_side_;
  std::array<std::array<float, 256>, 3> values_;  // of each colour's bytes
};

}  // namespace imp
