#include "model/vision/patches.h"

#include <cstddef>

namespace imp {

// In the order of the reference's roundings: of the product, of the difference, and of the quotient.
Patches::Patches(const VisionConfig& config) : patch_size_(config.patch_size) {
  for (std::size_t colour = 0; colour < values_.size(); ++colour) {
    for (std::size_t byte = 0; byte < values_[colour].size(); ++byte) {
      const auto from_0_to_1 = static_cast<float>(static_cast<double>(byte) * (1.0 / 255));
      values_[colour][byte] = (from_0_to_1 - config.mean[colour]) / config.deviation[colour];
    }
  }
}

void Patches::read(const MediaPart& part, int patch, std::span<float> out) const {
  const int width = part.grid[1], columns = width / patch_size_;
  const int first_row = patch / columns * patch_size_, first_column = patch % columns * patch_size_;
  std::size_t at = 0;
  for (std::size_t colour = 0; colour < values_.size(); ++colour) {
    for (int row = first_row; row < first_row + patch_size_; ++row) {
      const std::size_t first = static_cast<std::size_t>(row * width + first_column) * 3 + colour;
      for (std::size_t i = 0; i < static_cast<std::size_t>(patch_size_); ++i) {
        out[at++] = values_[colour][part.pixels[first + 3 * i]];
      }
    }
  }
}

}  // namespace imp
