// The sizes of parts that a tower reads.
#include "model/vision/part_check.h"

#include <cstddef>
#include <string>

#include "base/error.h"
#include "model/config/model_limits.h"

namespace imp {
namespace {

std::string text_of(const MediaPart& part) {
  return std::to_string(part.grid[0]) + " x " + std::to_string(part.grid[1]) + " pixels in " +
         std::to_string(part.pixels.size()) + " bytes for " + std::to_string(part.n_rows) + " cells";
}

// The sizes that a tower reads, in words.
std::string sizes_of(const VisionConfig& config) {
  if (config.has_one_size()) {
    return std::to_string(config.tile_size) + " x " + std::to_string(config.tile_size) + " pixels for " +
           std::to_string(config.max_part_cells()) + " cells";
  }
  return "multiples of " + std::to_string(config.cell_side()) + " pixels for at most " +
         std::to_string(config.max_cells) + " cells";
}

bool fits(const VisionConfig& config, const MediaPart& part) {
  const auto [height, width] = part.grid;
  if (height < 1 || width < 1 || height > model_limits::kImageSide || width > model_limits::kImageSide) return false;
  if (part.pixels.size() != std::size_t{3} * static_cast<std::size_t>(height) * static_cast<std::size_t>(width)) {
    return false;
  }
  const bool has_size = config.has_one_size() ? height == config.tile_size && width == config.tile_size
                                              : height % config.cell_side() == 0 && width % config.cell_side() == 0;
  const int n_cells = config.cells_of(config.patches_of(height, width)).count();
  return has_size && part.n_rows == n_cells && n_cells <= config.max_part_cells();
}

}  // namespace

void check_part(const VisionConfig& config, const MediaPart& part) {
  if (!fits(config, part)) throw FieldInvalid("part", text_of(part) + ", expected " + sizes_of(config));
}

}  // namespace imp
